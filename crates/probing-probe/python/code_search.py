"""Finds the code that a point is meant for. Runs inside the target, called by codes.rs alone.

Nothing of the program's is called: modules, classes and functions are looked at where they are stored.

A search (``find``) is a generator: it yields ``None`` after every piece of some 0.1 ms, so that codes.rs can give
the GIL back in between, and what it has found at the end.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from types import CodeType, FrameType, FunctionType
    from typing import Any, TypeGuard

FUNCTION = type(lambda: None)
MODULE = type(sys)
CODE = type((lambda: None).__code__)
C_FUNCTIONS = (type(len), type(str.join), type(object.__init__), type("".__add__), type(dict.__dict__["fromkeys"]))
# What leads to no code.
PLAIN = {
    *(str, int, float, bool, bytes, tuple, list, dict, set, frozenset, type(None), MODULE, *C_FUNCTIONS),
    *(type(type.__dict__["__name__"]), type(type.__dict__["__basicsize__"])),
}
# `opcode.opmap["RESUME"]`, which every function begins with from 3.11 on.
RESUME = (lambda: None).__code__.co_code[0] if sys.version_info >= (3, 11) else None
# `inspect.CO_OPTIMIZED`: the code of a function.
OPTIMIZED = 1
# The file of code of ours, which nobody means.
OURS = "<probing>"
# How deep wrappers may lie around a function.
WRAPPERS = 10
# Guards of compiled code that are read, of all functions together: each takes some tenths of a microsecond.
GUARDS = 100_000
# Classes that are looked at for one method.
CLASSES = 1000
# How often a module is looked through for names of its code.
LOOKS = 100
# A piece of a search: values, or classes, that are looked at before others may run.
PIECE = 100
# Codes of libraries that are looked at for a name that no module and no class has: each takes some microseconds.
LIBRARY_CODES = 8000
PARTLY = "of the libraries a part was searched; a function inside another one has it from when it next begins"

# Before 3.12: the functions that have a code, by its id, as far as the last search saw them.
_functions: dict[int, dict[int, FunctionType]] = {}

# Before 3.11: qualified names of code, by its id, as far as modules were looked through since the last search, and how
# often each was.
_named: dict[int, tuple[CodeType, str]] = {}
_looks: dict[str, int] = {}

_names_of: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_module_of_class: Callable[[type], object] = type.__dict__["__module__"].__get__
_qualname_of_class: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_mro_of: Callable[[type], tuple[type, ...] | None] = type.__dict__["__mro__"].__get__

# The codes, by id, of functions that `torch.compile` was put around, as far as the last search saw them.
_put_around: set[int] = set()

# The names that frames of a code will have, by its id, as far as the last search saw them.
_globals: dict[int, dict[str, Any]] = {}

if TYPE_CHECKING:
    # A code object, the module it belongs to, and its qualified name.
    Owned = tuple[CodeType, str, str]
    # A code object, its qualified name, and a line of it.
    Placed = tuple[CodeType, str, int]
    # Pieces of a search, then what was found, and what to say about it.
    Search = Iterator[tuple[list[Placed], str | None] | None]


class Line:
    """The codes that a line of a file belongs to."""

    def __init__(self, file: str, line: int) -> None:
        self._file, self._line = file, line
        self._known: dict[str, bool] = {}
        # Whether code has this very line: then none inside it is meant that only lies around it.
        self._is_exact = False
        self._real = None if _is_made_up(file) else os.path.realpath(file)

    def file_names(self) -> list[str]:
        """Tell the last parts that the names of such files have."""
        known = [name for name, is_it in self._known.items() if is_it]
        return list({os.path.basename(name) for name in (self._file, self._real or self._file, *known)})

    def is_in(self, file: str) -> bool:
        """Tell whether a code object's file is the one that is meant."""
        is_it = self._known.get(file)
        if is_it is None:
            is_it = self._known[file] = self._is_same(file)
        return is_it

    def _is_same(self, file: str) -> bool:
        if file == self._file or (not _is_made_up(file) and file.endswith(f"/{self._file.removeprefix('./')}")):
            return True
        return self._real is not None and not _is_made_up(file) and os.path.realpath(file) == self._real

    def find(self) -> Search:
        """Look through all that is loaded: codes with their names and lines, and what to say about it."""
        _forget()
        codes: dict[int, Any] = {}
        for module, names in _modules():
            file = names.get("__file__")
            if type(file) is not str or (file in self._known and not self._known[file]):
                continue
            # To follow the links of a name takes some microseconds.
            yield None
            if self.is_in(file):
                for code, _, qualname in _codes_of_module(module, names):
                    codes[id(code)] = code, qualname
                yield None
        for frame in _frames():
            if self.is_in(frame.f_code.co_filename):
                for code, qualname in _with_nested(_original(frame.f_code), _qualname(frame.f_code)):
                    codes.setdefault(id(code), (code, qualname))
                    _globals.setdefault(id(code), frame.f_globals)
        found = self._chosen([pair for pair in codes.values() if self.is_in(pair[0].co_filename)])
        if found:
            yield found, _compiled(found)
        elif codes:
            note = f"no code that is loaded has line {self._line}: it belongs to the body of the module, which has run,"
            yield [], f"{note} or is after the last line; set in case the file is loaded again"
        else:
            yield [], f"no code from {self._file} is loaded yet: set for when it is{self._near()}"

    def bind(self, code: CodeType, module: str) -> list[tuple[CodeType, str, int]]:
        """Choose among a code object that begins to run and those inside it."""
        if not self.is_in(code.co_filename) or _is_made_by_torch(code):
            return []
        return self._chosen(list(_with_nested(code, _qualname_in(code, module))))

    def _chosen(self, codes: list[tuple[CodeType, str]]) -> list[tuple[CodeType, str, int]]:
        wanted = self._line
        # To tell all lines of all code takes a while: most have not even heard of this one.
        near = [pair for pair in codes if any(line == wanted for _, _, line in pair[0].co_lines())]
        exact = [(code, qualname, wanted) for code, qualname in near if wanted in lines_of(code)]
        if not exact and self._is_exact:
            return []
        # A docstring or a signature is a line of no code: the function that it belongs to may be loaded again.
        self._is_exact = bool(exact)
        exact = self._with_defined(exact, codes)
        if exact:
            return exact
        lines = [(code, qualname, lines_of(code)) for code, qualname in codes]
        around = [
            (code.co_firstlineno, code, qualname, min(line for line in has if line > self._line))
            for code, qualname, has in lines
            if has and code.co_firstlineno <= self._line < max(has)
        ]
        if not around:
            return []
        innermost = max(first for first, *_ in around)
        return [(code, qualname, line) for first, code, qualname, line in around if first == innermost]

    def _with_defined(self, exact: list[Placed], codes: list[tuple[CodeType, str]]) -> list[Placed]:
        """Choose the function that a line defines before the body of the module or class, which comes there once."""
        functions = [pair for pair in codes if _is_def(pair[0]) and pair[0].co_firstlineno <= self._line]
        last = max((code.co_firstlineno for code, _ in functions), default=0)
        begun = [(code, name, first_line(code)) for code, name in functions if code.co_firstlineno == last]
        defined = [one for one in begun if self._line <= one[2]]
        # A function around it, and a class in there, come to it whenever that is called.
        ids = {id(code) for code, *_ in defined}
        others = [one for one in exact if id(one[0]) not in ids]
        run = [one for one in others if one[0].co_flags & OPTIMIZED or "<locals>" in one[1]]
        is_inside = any(not code.co_name.startswith("<") for code, *_ in run)
        return exact if is_inside or not defined else run + defined

    def moved(self, code: CodeType, qualname: str, line: int) -> str | None:
        """Say why another line is met than the one that was asked for."""
        if line == self._line:
            return None
        if _is_def(code) and self._line < line == first_line(code):
            return f"line {self._line} defines {qualname}: moved to its first line, {line}"
        return f"line {self._line} has no code: moved to line {line}"

    def _near(self) -> str:
        wanted = os.path.basename(self._file).lower()
        stem = wanted.removesuffix(".py")
        files = {names.get("__file__") for _, names in _modules()}
        near = sorted(
            file
            for file in files
            if type(file) is str and stem and (stem in os.path.basename(file).lower() or wanted == file.lower())
        )
        return f"; near: {', '.join(near[:3])}" if near else ""


class Function:
    """The codes of the functions that are called so."""

    def __init__(self, function: str, file: str | None = None) -> None:
        self._function = function
        self._file = None if file is None else Line(file, 0)
        # Modules can be meant in its place, as in entry points: `package.module:function`.
        self._module = file
        self._leaves_out_library = False
        self._parts = function.split(".")
        # What was found: codes by their ids, and where modules have them.
        self._codes: dict[int, CodeType] = {}
        self._places: set[tuple[str, tuple[str, ...]]] = set()

    def name(self) -> str:
        return self._parts[-1]

    def find(self) -> Search:
        """Look through what is loaded: codes with their names and first lines, and what to say about it."""
        _forget()
        codes: dict[int, Owned] = {id(found[0]): found for found in self._named_by_module()}
        near: set[str] = set()
        # What has the name, and no code of Python's.
        others: dict[str, object] = {}
        if not codes:
            yield from self._look_in_program(codes, others, near)
        yield from self._look_at_frames(codes)
        is_whole = True
        if not codes and not others:
            is_whole = yield from self._look_through(codes, near, libraries=True)
        found, note = self._preferred(list(codes.values())) if codes else ([], self._nothing(others, near))
        yield found, _together(note, None if is_whole else PARTLY)

    def _named_by_module(self) -> list[Owned]:
        """Give what a module that is loaded has under this name, when the name begins with that module's."""
        candidates = [(self._module, self._parts)]
        if self._file is None:
            ends = range(len(self._parts) - 1, 0, -1)
            candidates = [(".".join(self._parts[:end]), self._parts[end:]) for end in ends]
        for module, path in candidates:
            if module not in sys.modules or _is_main(module):
                continue
            found = list(_codes_of(_value_at(module, path), module, set(), 0))
            # A class may have it from the module that it was imported from. (A function may have it inside.)
            own = [it for it in found if it[0].co_name == self.name() and it[2].split(".")[-len(path) :] == path]
            meant = [it for it in own or found if self._file is None or self._is_meant(*it)]
            if own and meant:
                return meant
        return []

    def _look_in_program(self, codes: dict[int, Owned], others: dict[str, object], near: set[str]) -> Iterator[None]:
        """Look at what all modules and classes have under the name, and through the modules that are no library's."""
        wanted = self.name()
        holders = [(module, module, names) for module, names in _modules()]
        for count, (module, holder, names) in enumerate(_chained(holders, _classes())):
            if count % PIECE == 0:
                yield None
            value = names.get(wanted, self)
            if value is self:
                continue
            found = list(_codes_of(value, module, set(), 0))
            for code, owner, qualname in found:
                if code.co_name == wanted and self._is_meant(code, owner, qualname):
                    codes[id(code)] = code, owner, qualname
            is_function = bool(found) and not _is_class(value)
            if not is_function and callable(value) and self._is_called(module, f"{holder}.{wanted}"):
                others.setdefault(f"{holder}.{wanted}", value)
        yield from self._look_through(codes, near, libraries=False)

    def _look_through(self, codes: dict[int, Owned], near: set[str], *, libraries: bool) -> Generator[None, None, bool]:
        """Look at every function of modules, and at those inside it; at all of them, unless libraries have too many."""
        wanted = self.name()
        alike = wanted.lower()
        seen: set[int] = set()
        left = LIBRARY_CODES
        for module, names in _modules():
            if _is_library_module(names) != libraries:
                continue
            for found in _in_pieces(module, names, seen):
                if found is None:
                    yield None
                    continue
                code, owner, qualname = found
                if code.co_name == wanted and self._is_meant(code, owner, qualname):
                    codes[id(code)] = found
                elif alike in code.co_name.lower() and len(near) < 100:
                    near.add(f"{owner}.{qualname}")
                left -= 1
                if left < 0 and libraries:
                    return False
        return True

    def _look_at_frames(self, codes: dict[int, Owned]) -> Iterator[None]:
        wanted = self.name()
        for count, frame in enumerate(_frames()):
            if count % PIECE == 0:
                yield None
            module = _module_of(frame)
            for code, qualname in _with_nested(_original(frame.f_code), _qualname(frame.f_code)):
                if code.co_name == wanted and id(code) not in codes and self._is_meant(code, module, qualname):
                    codes[id(code)] = code, module, qualname
                    _globals.setdefault(id(code), frame.f_globals)

    def _nothing(self, others: dict[str, object], near: set[str]) -> str:
        if others:
            name, value = min(others.items(), key=lambda other: len(other[0]))
            return f"{name} is {_kind_of(value)}: set in case a Python function gets this name later"
        nearest = sorted(near, key=lambda name: (not name.endswith(f".{self.name()}"), len(name)))
        hint = f"; near: {', '.join(nearest[:3])}" if near else ""
        called = self._function if self._module is None else f"{self._function} in {self._module}"
        return f"no loaded function is named {called}: set for when one is loaded{hint}"

    def bind(self, code: CodeType, module: str) -> list[tuple[CodeType, str, int]]:
        """Tell whether a code object that begins to run is meant."""
        if code.co_name != self.name() or code.co_filename == OURS:
            return []
        qualname = _qualname_in(code, module)
        if (self._leaves_out_library and is_of_library(code)) or _is_made_by_torch(code):
            return []
        return [self._noted(code, module, qualname)] if self._is_meant(code, module, qualname) else []

    def again(self) -> list[tuple[CodeType, str, int]]:
        """Choose what is new where functions were found before: one may have been defined again."""
        found = []
        for module, path in list(self._places):
            for code, owner, qualname in _codes_of(_value_at(module, path), module, set(), 0):
                is_new = code.co_name == self.name() and id(code) not in self._codes
                if is_new and self._is_meant(code, owner, qualname):
                    found.append(self._noted(code, owner, qualname))
        return found

    def _noted(self, code: CodeType, module: str, qualname: str) -> tuple[CodeType, str, int]:
        self._codes[id(code)] = code
        self._places.add((module, tuple(qualname.split(".<locals>")[0].split("."))))
        return code, qualname, first_line(code)

    def _preferred(self, codes: list[tuple[CodeType, str, str]]) -> tuple[list[tuple[CodeType, str, int]], str | None]:
        """Choose what the program has of its own before what a library calls the same."""
        own = [found for found in codes if not is_of_library(found[0])]
        chosen = own or codes
        self._leaves_out_library = bool(own)
        note = None
        if len(chosen) < len(codes):
            others = sorted({f"{module}.{qualname}" for code, module, qualname in codes if is_of_library(code)})
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            note = f"omitted functions of libraries: {', '.join(others[:3])}{more}; name one as MODULE.FUNCTION"
        found = [self._noted(*one) for one in chosen]
        return found, _together(note, _compiled(found))

    def _is_called(self, module: str, name: str) -> bool:
        """Tell whether what has no code is meant. A name alone means no method: half of C's are called the same."""
        parts = name.split(".")
        is_whole = len(self._parts) > 1 or len(parts) == len(module.split(".")) + 1
        return self._file is None and is_whole and parts[-len(self._parts) :] == self._parts

    def _is_meant(self, code: CodeType, module: str, qualname: str) -> bool:
        if self._file is not None and not self._file.is_in(code.co_filename) and module != self._module:
            return False
        names = [part for part in qualname.split(".") if part != "<locals>"]
        modules = [module.split(".")]
        if module == "__main__":
            modules.append([os.path.basename(code.co_filename).removesuffix(".py")])
        return any((owner + names)[-len(self._parts) :] == self._parts for owner in modules)


class Module:
    """The codes of all functions of a module, and of the modules inside it."""

    def __init__(self, module: str) -> None:
        self._module = module

    def name(self) -> str:
        return self._module

    def find(self) -> Search:
        """Look through all that is loaded: codes with their names and first lines, and what to say about it."""
        _forget()
        codes: dict[int, tuple[CodeType, str]] = {}
        near: set[str] = set()
        for module, names in _modules():
            if self._is_in(module):
                file = names.get("__file__")
                for one in _in_pieces(module, names, set()):
                    if one is None:
                        yield None
                        continue
                    code, owner, qualname = one
                    # What a module has imported from another is that other's.
                    if (owner == module or code.co_filename == file) and code.co_flags & OPTIMIZED:
                        codes[id(code)] = code, qualname
            elif self._module.lower() in module.lower() and len(near) < 100:
                near.add(module)
        for frame in _frames():
            if self._is_in(_module_of(frame)):
                for code, qualname in _with_nested(_original(frame.f_code), _qualname(frame.f_code)):
                    if code.co_flags & OPTIMIZED:
                        codes.setdefault(id(code), (code, qualname))
        found: list[Placed] = []
        for code, qualname in codes.values():
            yield None
            found.append((code, qualname, first_line(code)))
        if found:
            yield found, None
            return
        hint = f"; near: {', '.join(sorted(near, key=len)[:3])}" if near else ""
        yield [], f"no loaded module is named {self._module}: waits for when one is loaded{hint}"

    def bind(self, code: CodeType, module: str) -> list[tuple[CodeType, str, int]]:
        """Choose a code object that begins to run, and those inside it."""
        if not self._is_in(module):
            return []
        nested = _with_nested(code, _qualname_in(code, module))
        return [(code, qualname, first_line(code)) for code, qualname in nested if code.co_flags & OPTIMIZED]

    def _is_in(self, module: str) -> bool:
        return module == self._module or module.startswith(f"{self._module}.")


def lines_of(code: CodeType) -> set[int]:
    """Tell the lines at which a code object can be met: not that of its name, where nothing happens."""
    begin = 0
    if RESUME is not None and code.co_flags & OPTIMIZED:
        raw = code.co_code
        begin = next((at + 2 for at in range(0, len(raw), 2) if raw[at] == RESUME), 0)
    return {line for _, end, line in code.co_lines() if line and end > begin}


def _is_def(code: CodeType) -> bool:
    """Tell whether a `def` made it, not a lambda or a comprehension."""
    return bool(code.co_flags & OPTIMIZED) and not code.co_name.startswith("<")


def first_line(code: CodeType) -> int:
    """Tell the line at which a function's body begins."""
    return min((line for line in lines_of(code)), default=code.co_firstlineno)


def _together(*notes: str | None) -> str | None:
    return "; ".join(note for note in notes if note) or None


def _compiled(found: list[tuple[CodeType, str, int]]) -> str | None:
    """Say which functions do not run as Python, because `torch.compile` has taken their place."""
    names = {qualname for code, qualname, _ in found if id(code) in _put_around or _made_of(code)}
    notes = [f"{_listed(names)} compiled by torch.compile: it cannot stop there"] if names else []
    taken, callers = _taken_in(found)
    if taken:
        among = ", ".join(sorted(callers)[:3])
        notes.append(f"{_listed(taken)} part of what torch.compile made of {among}: calls from there do not stop")
    if not notes:
        return None
    return f"{'; '.join(notes)}; TORCH_COMPILE_DISABLE=1 or torch.compiler.disable leave a function as it is"


def _listed(names: set[str]) -> str:
    return f"{', '.join(sorted(names))} {'is' if len(names) == 1 else 'are'}"


def _made_of(code: CodeType) -> list[Any]:
    """Give what `torch.compile` has made of a function: an entry for each set of guards."""
    frames: Any = getattr(getattr(sys.modules.get("torch._C"), "_dynamo", None), "eval_frame", None)
    entries = getattr(frames, "_debug_get_cache_entry_list", None)
    return [] if entries is None else entries(code)


def _taken_in(found: list[tuple[CodeType, str, int]]) -> tuple[set[str], set[str]]:
    """Tell which functions are part of what was made of others, as far as guards name them, and of which."""
    taken: set[str] = set()
    callers: set[str] = set()
    seen = getattr(getattr(sys.modules.get("torch._dynamo.convert_frame"), "input_codes", None), "seen", ())
    left = GUARDS
    for reference in list(seen):
        caller = reference()
        for entry in [] if caller is None else _made_of(caller):
            guards: list[str] = getattr(getattr(entry, "guard_manager", None), "code_parts", [])
            left -= len(guards)
            if left < 0:
                return taken, callers
            for code, qualname, _ in found:
                if code is not caller and _is_relied_on(code, qualname, guards):
                    taken.add(qualname)
                    # What follows a break of the graph is called after the function that it is in.
                    _, resumed, name = caller.co_name.partition("torch_dynamo_resume_in_")
                    callers.add(name.rpartition("_at_")[0] if resumed else _qualname(caller))
    return taken, callers


def _is_relied_on(code: CodeType, qualname: str, guards: list[str]) -> bool:
    """Tell whether compiled code holds only while a function has this very code, or a class this very method."""
    own = f".__code__, {id(code)})"
    if any(own in guard and guard.startswith("___check_obj_id(") for guard in guards):
        return True
    begin, end = f"not ___dict_contains({code.co_name!r}, ", ".__dict__)"
    objects = {guard[len(begin) : -len(end)] for guard in guards if guard.startswith(begin) and guard.endswith(end)}
    if not objects:
        return False
    kinds = {
        f"___check_type_id({name}, {id(kind)})" for name in objects for kind in _classes_with(code, qualname.split("."))
    }
    return any(guard.partition("), type=")[0] + ")" in kinds for guard in guards)


def _classes_with(code: CodeType, path: list[str]) -> list[type]:
    """Give the classes whose method this is: the one that it was written in, and those derived from it."""
    classes: dict[int, type] = {}
    for _, names in _modules():
        value: Any = names.get(path[0])
        for part in path[1:-1]:
            value = (_names_of(value) or {}).get(part) if _is_class(value) else None
        method = (_names_of(value) or {}).get(path[-1]) if _is_class(value) else None
        if type(method) is FUNCTION and _original(method.__code__) is code:
            classes[id(value)] = value
    derived = list(classes.values())
    while derived and len(classes) < CLASSES:
        below: list[list[type]] = [type.__subclasses__(kind) for kind in derived]
        derived = [each for kinds in below for each in kinds if id(each) not in classes]
        classes.update((id(each), each) for each in derived)
    return list(classes.values())


def _is_class(value: object) -> TypeGuard[type]:
    return type in (_mro_of(type(value)) or ())


def functions_of(code: CodeType) -> list[FunctionType]:
    """Give the functions that have this code; only before 3.12, which finds none otherwise."""
    return list(_functions.get(id(code), {}).values())


def qualname_of(code: CodeType, frame: FrameType) -> str:
    """Give the qualified name of what a frame runs."""
    return _qualname_in(code, _module_of(frame), frame.f_globals)


def _qualname_in(code: CodeType, module: str, names: dict[str, Any] | None = None) -> str:
    """Give the qualified name of code of a module: before 3.11 only functions know it, not their code."""
    if hasattr(code, "co_qualname"):
        return code.co_qualname
    found, qualname = _named.get(id(code), (None, ""))
    if found is code:
        return qualname
    if names is None:
        names = getattr(sys.modules.get(module), "__dict__", {})
    _looks[module] = _looks.get(module, 0) + 1
    if _looks[module] <= LOOKS:
        # This is no search: code that runs already is not to be told of by its functions, which would get other code.
        functions = dict(_functions)
        codes = _codes_of_module(module, names)
        _named.update({id(found): (found, qualname) for found, _, qualname in codes})
        _functions.clear()
        _functions.update(functions)
    found, qualname = _named.get(id(code), (None, ""))
    if found is not code:
        qualname = code.co_name
        _named[id(code)] = code, qualname
    return qualname


def _forget() -> None:
    """Begin a search: what the last one saw may be gone."""
    for seen in (_put_around, _functions, _named, _looks):
        seen.clear()


def globals_of(code: CodeType) -> dict[str, Any] | None:
    """Give the names that frames of a code will have, if the last search saw them."""
    return _globals.get(id(code))


def forget_globals() -> None:
    """Keep no names of the program."""
    _globals.clear()


def _own_code(function: FunctionType) -> CodeType:
    """Give the code of a function, also when ours stands in its place (before 3.12)."""
    code = function.__code__
    if sys.version_info < (3, 12):
        for constant in code.co_consts:
            if type(constant).__name__ == "TraceConstant" and type(constant).__module__ == "probing._probe":
                code = constant.function.__code__
        code = _original(code)
        _functions.setdefault(id(code), {})[id(function)] = function
    return code


def _original(code: CodeType) -> CodeType:
    """Give the code that one with calls of ours was made of (before 3.12); any other as it is."""
    if sys.version_info < (3, 12) and code.co_consts:
        # They are put behind its own constants.
        site = code.co_consts[-1]
        if type(site).__name__ == "Site" and type(site).__module__ == "probing._probe":
            return site.code  # type: ignore[no-any-return]
    return code


def _is_made_by_torch(code: CodeType) -> bool:
    """Tell whether it calls what `torch.compile` has made of a function, under that function's name."""
    return any(name.startswith("__compiled_fn_") for name in code.co_names)


def _is_made_up(file: str) -> bool:
    return file.startswith("<")


def _qualname(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)


def _module_of(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if type(name) is str else ""


def _modules() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, module in list(sys.modules.items()):
        if type(name) is str and isinstance(module, MODULE):
            names = object.__getattribute__(module, "__dict__")
            if type(names) is dict:
                yield name, names


def _is_main(module: str) -> bool:
    """Tell whether the program itself may be meant by a module's name: what is loaded so then is a second copy."""
    main: Any = sys.modules.get("__main__")
    file = getattr(main, "__dict__", {}).get("__file__")
    return type(file) is str and os.path.basename(file).removesuffix(".py") == module


def _is_library_module(names: dict[str, Any]) -> bool:
    file = names.get("__file__")
    return type(file) is str and (file.startswith(LIBRARY) or INSTALLED[0] in file or INSTALLED[1] in file)


def _classes() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give every class that there is: its module, its qualified name there, and its names."""
    seen: set[int] = set()
    left: list[type] = [object]
    while left:
        kind = left.pop()
        # A class of C code that was never made ready has nothing.
        names = _names_of(kind) or {}
        module = names.get("__module__") or _module_of_class(kind)
        if type(module) is str:
            yield module, f"{module}.{_qualname_of_class(kind)}", names
        below: list[type] = type.__subclasses__(kind)
        for derived in below:
            if id(derived) not in seen:
                seen.add(id(derived))
                left.append(derived)


def _chained(first: list[Any], rest: Iterator[Any]) -> Iterator[Any]:
    yield from first
    yield from rest


def _kind_of(value: object) -> str:
    """Say what can be called and has no code of Python's."""
    if _is_class(value):
        return "a class, whose functions are CLASS.METHOD"
    kind = type(value)
    module, name = _names_of(kind).get("__module__"), _qualname_of_class(kind)
    if kind in C_FUNCTIONS:
        return "a C function, in which Python has no lines"
    if name in ("cython_function_or_method", "fused_cython_function"):
        return "compiled by Cython: Python has no lines there"
    root = module.partition(".")[0] if type(module) is str else ""
    if root == "numba":
        return "compiled by numba: Python does not run its lines (NUMBA_DISABLE_JIT=1 leaves it as it is)"
    if root == "ray":
        return "run by Ray in a process of its own: it can be stopped in that one"
    return f"an object of {module or ''}.{name}, which has no Python code"


def _frames() -> Iterator[FrameType]:
    for frame in list(sys._current_frames().values()):
        found: FrameType | None = frame
        while found is not None:
            yield found
            found = found.f_back


def _with_nested(code: CodeType, qualname: str) -> Iterator[tuple[CodeType, str]]:
    if code.co_filename == OURS:
        return
    yield code, qualname
    if code.co_flags & OPTIMIZED:
        inside = f"{qualname}.<locals>."
    else:
        # The body of a class, or of a module.
        inside = "" if code.co_name == "<module>" else f"{qualname}."
    for constant in code.co_consts:
        if type(constant) is CODE:
            yield from _with_nested(constant, getattr(constant, "co_qualname", f"{inside}{constant.co_name}"))


def _codes_of_module(module: str, names: dict[str, Any]) -> Iterator[tuple[CodeType, str, str]]:
    """Give every code object that a module's functions and classes lead to."""
    seen: set[int] = set()
    for value in list(names.values()):
        yield from _codes_of(value, module, seen, 0)


def _in_pieces(module: str, names: dict[str, Any], seen: set[int]) -> Iterator[Owned | None]:
    """Give the same but for what was seen in other modules, and ``None`` after each piece of it."""
    count = 0
    for value in list(names.values()):
        count += 1
        # Most of what a module has is plain data, or was imported from another.
        if type(value) in PLAIN or id(value) in seen:
            continue
        for found in _codes_of(value, module, seen, 0):
            count += 2
            yield found
            if count >= PIECE:
                count = 0
                yield None
    yield None


def _value_at(module: str, path: Sequence[str]) -> object:
    """Give what a module, and classes in it, have under these names."""
    names = getattr(sys.modules.get(module), "__dict__", {})
    value = names.get(path[0])
    for name in path[1:]:
        value = (_names_of(value) or {}).get(name) if _is_class(value) else None
    return value


def _codes_of(value: object, module: str, seen: set[int], depth: int) -> Iterator[tuple[CodeType, str, str]]:
    if id(value) in seen or depth > WRAPPERS:
        return
    kind = type(value)
    if kind is FUNCTION:
        seen.add(id(value))
        yield from _codes_of_function(value, module, seen, depth)  # type: ignore[arg-type]
    elif kind in (staticmethod, classmethod):
        yield from _codes_of(value.__func__, module, seen, depth + 1)  # type: ignore[attr-defined]
    elif kind is property:
        for part in (value.fget, value.fset, value.fdel):  # type: ignore[attr-defined]
            yield from _codes_of(part, module, seen, depth + 1)
    elif _is_class(value):
        # A class of C code that was never made ready has nothing.
        names = _names_of(value) or {}
        if names.get("__module__") == module:
            seen.add(id(value))
            for part in list(names.values()):
                if type(part) not in PLAIN:
                    yield from _codes_of(part, module, seen, depth + 1)
    elif depth > 0 or kind.__module__ == "functools":
        # What a decorator of the library made of a function: `cached_property`, `lru_cache`, `partial`, …
        for name in ("func", "__wrapped__"):
            try:
                part = object.__getattribute__(value, name)
            except AttributeError:
                continue
            yield from _codes_of(part, module, seen, depth + 1)


def _codes_of_function(
    function: FunctionType, module: str, seen: set[int], depth: int
) -> Iterator[tuple[CodeType, str, str]]:
    owner: Any = function.__module__
    name = function.__qualname__
    # Asked for by name: for `__dict__` Python would make each function of the program a dictionary, and keep it.
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        # It bears the names of what it wraps. Its code is that of all which the decorator wraps.
        owner, name = function.__globals__.get("__name__"), _qualname(_own_code(function))
    if type(owner) is not str:
        owner = module
    inner = getattr(function, "_torchdynamo_orig_callable", None)
    if type(inner) is FUNCTION:
        _put_around.add(id(inner.__code__))
    for code, qualname in _with_nested(_own_code(function), name):
        if id(code) not in seen:
            seen.add(id(code))
            _globals[id(code)] = function.__globals__
            yield code, owner, qualname
    for cell in function.__closure__ or ():
        try:
            inside = cell.cell_contents
        except ValueError:
            continue
        yield from _codes_of(inside, module, seen, depth + 1)
    if wrapped is not None:
        yield from _codes_of(wrapped, module, seen, depth + 1)


# Folders of what nobody here wrote.
LIBRARY = (os.path.dirname(os.__file__) + "/",)
INSTALLED = ("/site-packages/", "/dist-packages/")


def is_of_library(code: CodeType) -> bool:
    """Tell whether code belongs to Python itself or to an installed package."""
    file = code.co_filename
    return file.startswith(("<frozen", *LIBRARY)) or any(folder in file for folder in INSTALLED)


def lines_in_memory(file: str) -> list[str] | None:
    """Give the lines of code that is in no file, as notebooks and tracebacks know them."""
    linecache: Any = sys.modules.get("linecache")
    entry = None if linecache is None else linecache.cache.get(file)
    return [line.rstrip("\n") for line in entry[2]] if entry is not None and len(entry) == 4 else None
