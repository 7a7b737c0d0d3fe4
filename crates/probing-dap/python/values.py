"""Shows values of a stopped program to an editor: bounded words for each, children in pages.

Runs in the target, in code that the debug adapter evaluates there, so it imports only what every interpreter has. No
`repr`, property or `__getattr__` of the program is run: what is shown is what is stored, and for tensors and arrays
their own descriptions. It stands as an attribute of `sys` for as long as the adapter's connection lasts, which holds
the `Keeper`.
"""

import sys
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    # Name, step, code that follows the value's own, and the value itself.
    Child = tuple[str, list[Any], str | None, Any]
else:
    # Stand-ins: a program that was packed may lack `typing`, and `__future__`, which would leave annotations alone.
    Any = Iterable = Iterator = list
    Child = tuple

TEXT = 200
ITEMS = 8
DEPTH = 3
MOST_ATTRIBUTES = 2000

NUMBERS = (int, float, complex, bool, type(None), type(Ellipsis), type(NotImplemented))
SEQUENCES = (list, tuple)
SETS = (set, frozenset)
BYTES = (bytes, bytearray)
FUNCTIONS: tuple[type, ...] = (type(lambda: 0), type(len), type([].append), type(sys), type(str.join))
# Types of the standard library whose words are their own and short.
WORDED = {
    ("datetime", "datetime"),
    ("datetime", "date"),
    ("datetime", "time"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
    ("decimal", "Decimal"),
    ("fractions", "Fraction"),
    ("uuid", "UUID"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("pathlib._local", "PosixPath"),
    ("pathlib._local", "PurePosixPath"),
    ("builtins", "range"),
    ("builtins", "slice"),
    ("re", "Pattern"),
    ("torch", "dtype"),
    ("torch", "device"),
    ("torch", "Size"),
}
OPEN = {list: "[", tuple: "(", set: "{", frozenset: "frozenset({"}
CLOSE = {list: "]", tuple: ")", set: "}", frozenset: "})"}
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(text: str) -> str:
    """Give text as JSON."""
    parts = []
    for letter in text:
        code = ord(letter)
        if letter in ESCAPES:
            parts.append(ESCAPES[letter])
        elif code < 32 or code == 127 or 0xD800 <= code < 0xE000:
            parts.append("\\u%04x" % (code if code < 0xD800 else 0xFFFD))
        else:
            parts.append(letter)
    return '"' + "".join(parts) + '"'


def jsoned(value: Any) -> str:
    """Give plain data as JSON."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is int:
        return int.__repr__(value)
    if type(value) is str:
        return quoted(value)
    if type(value) is dict:
        return "{" + ",".join([quoted(key) + ":" + jsoned(item) for key, item in value.items()]) + "}"
    return "[" + ",".join([jsoned(item) for item in value]) + "]"


def short(text: str, most: int = TEXT) -> str:
    """Cut text in its middle."""
    if len(text) <= most:
        return text
    half = most // 2
    return text[:half] + " … " + text[-half:]


def names_of(kind: Any) -> tuple[str, str]:
    """Give module and name of a class, without its metaclass's code."""
    module = type.__dict__["__module__"].__get__(kind)
    if type(module) is not str:
        module = ""
    return module, type.__dict__["__qualname__"].__get__(kind)


def is_a(value: Any, kinds: Any) -> bool:
    """As `isinstance`, but believes no `__class__` of the program's."""
    return issubclass(type(value), kinds)


def kind_name(value: Any) -> str:
    module, name = names_of(type(value))
    return name if module in ("builtins", "__main__", "") else module + "." + name


def stored(value: Any) -> dict[Any, Any]:
    """Give the instance's own `__dict__`, if it has one that is a dictionary."""
    for kind in type.__dict__["__mro__"].__get__(type(value)):
        entry = type.__dict__["__dict__"].__get__(kind).get("__dict__")
        if type(entry).__name__ == "getset_descriptor":
            try:
                found = entry.__get__(value)
            except Exception:  # noqa: BLE001 - it is the program's
                return {}
            return found if is_a(found, dict) else {}
    return {}


def slots(value: Any) -> list[tuple[str, Any]]:
    """Give what the instance stores in slots, with names."""
    found = []
    for kind in type.__dict__["__mro__"].__get__(type(value)):
        for name, entry in type.__dict__["__dict__"].__get__(kind).items():
            if type(entry).__name__ == "member_descriptor" and type(name) is str:
                if names_of(kind)[0] == "builtins":
                    continue
                try:
                    item = entry.__get__(value)
                except AttributeError:
                    continue
                found.append((name, item))
    return found


def is_array(value: Any) -> bool:
    """Tell whether it is a tensor or an array, which describe themselves."""
    names = {names_of(kind) for kind in type.__dict__["__mro__"].__get__(type(value))}
    return ("torch", "Tensor") in names or ("numpy", "ndarray") in names


def is_frame(value: Any) -> bool:
    module, name = names_of(type(value))
    return module.split(".")[0] == "pandas" and name in ("DataFrame", "Series")


def array_words(value: Any) -> str:
    parts = [kind_name(value).split(".")[-1], "(shape=(", ", ".join([str(int(size)) for size in value.shape]), ")"]
    parts += [", dtype=", str(value.dtype).replace("torch.", "")]
    device = getattr(value, "device", None)
    if device is not None and str(device) != "cpu":
        parts += [", device=", str(device)]
    if getattr(value, "requires_grad", False) is True:
        parts.append(", requires_grad")
    return "".join(parts) + ")"


def words(value: Any, depth: int = DEPTH, most: int = TEXT) -> str:
    """Describe a value in few words, running no code of the program."""
    kind: Any = type(value)
    if kind is str:
        return str.__repr__(short(value, most))
    if kind is int:
        if value.bit_length() > 4000:
            return f"<int of {value.bit_length()} bits>"
        return short(int.__repr__(value), most)
    if kind in NUMBERS:
        return str(kind.__repr__(value))
    if kind in BYTES:
        text = kind.__repr__(value[: most // 2])
        return text if len(value) <= most // 2 else f"{text} … {len(value)} bytes"
    if is_a(value, type):
        module, name = names_of(value)
        return "<class %s>" % (name if module == "builtins" else module + "." + name)
    if kind in FUNCTIONS:
        return short(kind.__repr__(value), most)
    if names_of(kind) in WORDED:
        return short(kind.__repr__(value), most)
    try:
        return composed(value, kind, depth, most)
    except Exception as error:  # noqa: BLE001 - it is the program's
        return f"<{kind_name(value)}, whose description raised {type(error).__name__}>"


def composed(value: Any, kind: Any, depth: int, most: int) -> str:
    if kind in SEQUENCES or kind in SETS:
        return container(value, kind, depth, most)
    if is_a(value, dict):
        return mapping(value, depth, most)
    if is_array(value):
        return array_words(value)
    if is_frame(value):
        shape = " × ".join([str(size) for size in value.shape])
        return "{} ({})".format(kind_name(value).split(".")[-1], shape)
    if is_a(value, (list, tuple, set, frozenset)):
        base = next(base for base in (list, tuple, set, frozenset) if is_a(value, base))
        fields = getattr(kind, "_fields", None) if base is tuple else None
        name = names_of(kind)[1]
        if type(fields) is tuple and len(fields) == tuple.__len__(value):
            pairs = zip(fields, tuple.__iter__(value), strict=True)
            return record(name, pairs, depth, most)
        return name + "(" + container(value, base, depth, most) + ")"
    if is_a(value, BaseException):
        arguments = BaseException.args.__get__(value)  # type: ignore[attr-defined]
        inside = container(arguments, tuple, depth - 1, most)[1:-1].rstrip(",")
        return names_of(kind)[1] + "(" + inside + ")"
    held = stored(value)
    member = held.get("_name_")
    for plain in (str, int, float):
        if is_a(value, plain):
            text = str.__str__(value) if plain is str else plain.__repr__(value)
            if type(member) is str:
                return f"<{names_of(kind)[1]}.{member}: {short(text, 60)}>"
            return f"{names_of(kind)[1]}({str.__repr__(text) if plain is str else text})"
    if type(member) is str and "_value_" in held:
        return f"<{names_of(kind)[1]}.{member}>"
    has_fields = any("__dataclass_fields__" in base.__dict__ for base in kind.__mro__)
    if has_fields:
        return record(names_of(kind)[1], list(held.items()) or slots(value), depth, most)
    return f"<{kind_name(value)} object at {id(value):#x}>"


def record(name: str, pairs: Iterable[tuple[Any, Any]], depth: int, most: int) -> str:
    if depth <= 0:
        return name + "(…)"
    parts = [field + "=" + words(item, depth - 1, 40) for field, item in islice(pairs, ITEMS) if type(field) is str]
    return short(name + "(" + ", ".join(parts) + ")", most)


def container(value: Any, base: Any, depth: int, most: int) -> str:
    length = base.__len__(value)
    if length and depth <= 0:
        return OPEN[base] + "…" + CLOSE[base]
    if base in SETS and not length:
        return "frozenset()" if base is frozenset else "set()"
    parts = [words(item, depth - 1, 40) for item in islice(base.__iter__(value), ITEMS)]
    if length > ITEMS:
        parts.append(f"… {length} items")
    comma = "," if base is tuple and length == 1 else ""
    return short(OPEN[base] + ", ".join(parts) + comma + CLOSE[base], most)


def mapping(value: Any, depth: int, most: int) -> str:
    length = dict.__len__(value)
    name = "" if type(value) is dict else names_of(type(value))[1]
    if length and depth <= 0:
        return name + "{…}"
    pairs = islice(dict.items(value), ITEMS)
    parts = [words(key, depth - 1, 40) + ": " + words(item, depth - 1, 40) for key, item in pairs]
    if length > ITEMS:
        parts.append(f"… {length} items")
    return short(name + "{" + ", ".join(parts) + "}", most)


def literal(key: Any) -> str | None:
    """Give a key as code that means it, or nothing."""
    if type(key) in (str, int, bytes, bool, float, type(None)) and (type(key) not in (str, bytes) or len(key) < 200):
        kind: Any = type(key)
        return str(kind.__repr__(key))
    return None


def length_of(value: Any) -> int:
    """Count the items that are shown by number."""
    for base in (list, tuple, set, frozenset, dict):
        if is_a(value, base):
            return base.__len__(value)
    if is_array(value):
        if not len(value.shape) or str(getattr(value, "device", "cpu")) != "cpu":
            return 0
        return int(value.shape[0])
    if is_frame(value):
        return len(value.columns) if len(value.shape) == 2 else len(value)
    if names_of(type(value)) == ("collections", "deque"):
        return len(value)
    return 0


def items(value: Any, start: int, count: int) -> Iterator[Child]:
    """Give a page of items: name, step, code after the value's own, item."""
    stop = start + count
    if is_a(value, dict):
        for number, (key, item) in enumerate(islice(dict.items(value), start, stop), start):
            code = literal(key)
            yield words(key, 1, 80), ["n", number], code and f"[{code}]", item
        return
    if is_frame(value) and len(value.shape) == 2:
        for number in range(start, min(stop, len(value.columns))):
            name = value.columns[number]
            code = literal(name)
            yield words(name, 1, 80), ["c", number], code and f"[{code}]", value.iloc[:, number]
        return
    if is_frame(value):
        for number in range(start, min(stop, len(value))):
            yield words(value.index[number], 1, 80), ["o", number], f".iloc[{number}]", value.iloc[number]
        return
    if is_a(value, (set, frozenset)):
        base = set if is_a(value, set) else frozenset
        for number, item in enumerate(islice(base.__iter__(value), start, stop), start):
            yield f"[{number}]", ["e", number], None, item
        return
    for number in range(start, min(stop, length_of(value))):
        yield f"[{number}]", ["i", number], f"[{number}]", at(value, number)


def at(value: Any, number: int) -> Any:
    for base in (list, tuple):
        if is_a(value, base):
            return base.__getitem__(value, number)
    return value[number]


def attributes(value: Any) -> list[Child]:
    """Give what is stored in a value under names: name, step, code, attribute."""
    if is_a(value, (str, int, float, complex, bytes, bytearray, type(None))):
        return []
    if is_array(value):
        # Not the gradient: another thread may be assigning it, without the GIL.
        names = ["shape", "dtype", "device", "requires_grad"]
        if ("numpy", "ndarray") in {names_of(kind) for kind in type(value).__mro__}:
            names = ["shape", "dtype", "nbytes"]
        found = [(name, getattr(value, name)) for name in names if hasattr(value, name)]
        return [(name, ["a", name], "." + name, item) for name, item in found]
    if is_frame(value):
        return [("shape", ["a", "shape"], ".shape", value.shape)]
    if is_a(value, BaseException):
        pairs = [("args", BaseException.args.__get__(value))]  # type: ignore[attr-defined]
        pairs += [(name, getattr(BaseException, name).__get__(value)) for name in ("__cause__", "__context__")]
    else:
        pairs = []
    fields = getattr(type(value), "_fields", None) if is_a(value, tuple) else None
    if type(fields) is tuple:
        pairs += list(zip(fields, tuple.__iter__(value), strict=False))
    if is_a(value, type):
        pairs += list(type.__dict__["__dict__"].__get__(value).items())
    else:
        pairs += list(stored(value).items()) + slots(value)
    pairs = [(name, item) for name, item in islice(pairs, MOST_ATTRIBUTES) if type(name) is str]
    pairs.sort(key=lambda pair: (pair[0].startswith("__"), pair[0].startswith("_")))
    return [(name, ["a", name], "." + name if name.isidentifier() else None, item) for name, item in pairs]


def described(value: Any) -> dict[str, Any]:
    """Describe a value, and how many children it has."""
    return {"value": words(value), "type": kind_name(value), **children_of(value)}


def children_of(value: Any) -> dict[str, int]:
    try:
        named, indexed = len(attributes(value)), length_of(value)
    except Exception:  # noqa: BLE001 - it is the program's
        named, indexed = 0, 0
    return {"named": named, "indexed": indexed}


class Values:
    """Answers the adapter. Its `repr` is the last answer, as JSON."""

    __slots__ = ("answer", "held", "last")

    def __init__(self) -> None:
        self.answer = "null"
        self.held: dict[str | int, Any] = {}
        self.last = 0

    def __repr__(self) -> str:
        answer, self.answer = self.answer, "null"
        return answer

    def say(self, answer: Any) -> "Values":
        self.answer = jsoned(answer)
        return self

    def reach(self, names: dict[str, Any], root: str | int, steps: list[list[Any]]) -> tuple[Any, bool]:
        """Follow steps to a value."""
        value = names[root] if type(root) is str else self.held[root]
        is_namespace = type(root) is str
        for kind, step in steps:
            if is_namespace:
                value = value[step]
            elif kind == "a":
                value = self.attribute(value, step)
            elif kind == "n":
                value = next(islice(dict.values(value), step, None))
            elif kind == "e":
                value = next(islice(iter(value), step, None))
            elif kind == "c":
                value = value.iloc[:, step]
            elif kind == "o":
                value = value.iloc[step]
            else:
                value = at(value, step)
            is_namespace = False
        return value, is_namespace

    def attribute(self, value: Any, name: str) -> Any:
        for known, _, _, item in attributes(value):
            if known == name:
                return item
        raise AttributeError(name)

    def children(
        self,
        local_names: Any,
        global_names: Any,
        root: str | int,
        steps: list[list[Any]],
        which: str,
        start: int,
        count: int,
    ) -> "Values":
        """List a page of a value's children."""
        value, is_namespace = self.reach({"l": local_names, "g": global_names}, root, steps)
        found: list[Child]
        if is_namespace:
            found = [(name, ["a", name], name, value[name]) for name in list(value) if type(name) is str]
            found = [child for child in found if child[0] != "__builtins__"]
            found.sort(key=lambda child: child[0].startswith("__"))
            found = found[start : start + count]
        elif which == "indexed":
            found = list(items(value, start, count))
        elif which == "named":
            found = attributes(value)[start : start + count]
        else:
            found = attributes(value)
            found = found[start : start + count] + list(items(value, max(0, start - len(found)), count))
            found = found[:count]
        children = []
        for name, step, code, child in found:
            children.append({"name": name, "step": step, "code": code, **described(child)})
        return self.say(children)

    def tell(self, value: Any, whole: bool = False) -> "Values":
        """Describe a value, and hold it so that it can be expanded."""
        answer = described(value)
        if whole:
            answer["value"] = short(repr(value), 100000)
        answer["none"] = value is None
        answer["held"] = 0
        if answer["named"] or answer["indexed"]:
            self.last += 1
            self.held[self.last] = value
            answer["held"] = self.last
        return self.say(answer)

    def assign(
        self, local_names: Any, global_names: Any, root: str | int, steps: list[list[Any]], step: list[Any], value: Any
    ) -> "Values":
        """Assign to a child of a value, and describe it."""
        target, is_namespace = self.reach({"l": local_names, "g": global_names}, root, steps)
        kind, where = step
        if is_namespace:
            target[where] = value
        elif kind == "a":
            setattr(target, where, value)
        elif kind == "n":
            target[next(islice(dict.keys(target), where, None))] = value
        elif kind == "c":
            target[target.columns[where]] = value
        elif kind == "o":
            target.iloc[where] = value
        elif kind == "e":
            raise TypeError("an element of a set cannot be assigned to")
        else:
            target[where] = value
        return self.tell(value)

    def release(self, *numbers: int) -> "Values":
        """Let go of values that were held."""
        for number in numbers:
            self.held.pop(number, None)
        return self.say(None)


class Keeper:
    """Takes the values away when the adapter's connection ends."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        sys.__dict__.pop(self.name, None)


def install(name: str) -> Keeper:
    """Make values reachable as an attribute of `sys`, for as long as the keeper lives."""
    sys.__dict__[name] = Values()
    return Keeper(name)
