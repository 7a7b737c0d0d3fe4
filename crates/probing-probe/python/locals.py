"""Puts the values of variables into words. Runs inside the target, called by locals.rs and by nobody else.

What can be told from the value itself is told without calling anything of the program's: numbers, text, containers,
data classes, and plain objects by their attributes. Of what holds data (tensors, arrays, tables) only shape, type and
device are told: their ``repr`` may wait for a device for ever. A scalar tensor that the CPU has is told by its value.
Everything else speaks for itself by its ``repr``.
"""

import sys
from _collections import deque  # type: ignore[import-not-found]
from itertools import islice
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
    from typing import Any

# As the reader from outside has them.
ITEMS = 10
DEPTH = 3
TEXT = 200
# Of one variable, in characters.
LONGEST = 4096
# What a `repr` may say.
OWN_WORDS = 1000
# Of shapes and types of data.
METADATA = 100
# Of a number that is written out; it takes time that grows with the square.
BITS = 4000

FUNCTION = type(lambda: None)
CELL = type((lambda content: lambda: content)(0).__closure__[0])  # type: ignore[index]
BUILT_IN = type(len)
MODULE = type(sys)

# Libraries whose objects keep data: what has no `repr` of its own in the program is told by its attributes.
DATA = frozenset(("cupy", "jax", "jaxlib", "numpy", "pandas", "polars", "tensorflow", "torch", "xarray"))

# As functions: a class cannot replace them.
name_of: Callable[[type], str] = type.__dict__["__name__"].__get__
_mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_names_of: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_module_of: Callable[[type], object] = type.__dict__["__module__"].__get__
_repr = repr


def scalar(_value: object) -> str | None:
    """Tell a scalar tensor of the CPU by its value. Replaced by locals.rs."""
    return None


def teller(patience: float) -> Callable[[object], str]:
    """Make the function that tells the values of one answer, each within ``patience`` seconds."""
    # Types whose `repr` has begun and not ended, with the value that it was for; all by address.
    unended: dict[int, int] = {}
    return lambda value: Words(patience, unended).of(value)


def quiet_teller() -> Callable[[object], str]:
    """Make a function that tells values without calling any `repr` of the program's."""
    return lambda value: Words(0, {}, own_words=False).of(value)


class Words:
    """Words for one value. Another one may be told meanwhile, when this one does not end."""

    def __init__(self, patience: float, unended: dict[int, int], *, own_words: bool = True) -> None:
        self._asks = own_words
        self._patience = patience
        self._unended = unended
        self._late = False
        self._around: list[object] = []
        self._written = 0

    def of(self, value: object) -> str:
        if any(value is other for other in self._around):
            return "..."
        self._around.append(value)
        text = self._told(value, type(value))
        self._around.pop()
        self._written += len(text)
        return text

    def _told(self, value: object, kind: type) -> str:
        # Not asked for attributes: Python would make it a dictionary of none, and keep it.
        if type(value) is FUNCTION:
            return _function(value)  # type: ignore[arg-type]
        own = _found(kind, "__repr__")
        if _is_number_of_numpy(kind):
            return self._own_words(value, kind)
        text = _metadata(value, kind)
        if text is not None:
            return text
        for base, tell in _BASES:
            if base in _mro_of(kind):
                return tell(self, value, kind)
        plain = _PLAIN.get(id(own))
        if plain is not None:
            return plain(value)
        attributes = _attributes(value)
        if attributes is not None:
            if _is_generated(own, kind):
                return f"{name_of(kind)}({self._pairs(attributes)})"
            if "data" in attributes and _is_wrapper(kind):
                return f"{name_of(kind)}({self.of(attributes['data'])})"
            if attributes and (own is object.__repr__ or _holds_data(kind)):
                return f"<{name_of(kind)} {self._pairs(attributes)}>"
        if own is object.__repr__:
            return f"<{name_of(kind)} object at {id(value):#x}>"
        return self._own_words(value, kind)

    def _own_words(self, value: object, kind: type) -> str:
        name, address = name_of(kind), id(kind)
        if not self._asks and not _is_number_of_numpy(kind):
            text = _quietly(value, kind)
            return f"<{name} object at {id(value):#x}>" if text is None else text
        if self._unended.get(address) == id(value):
            return f"<{name}, whose repr did not end within {self._patience:g} s>"
        if address in self._unended:
            return f"<{name}, not shown: the repr of another one did not end>"
        if self._late:
            return f"<{name}, not shown: out of time>"
        self._unended[address] = id(value)
        began = monotonic()
        try:
            text = _repr(value)
        except BaseException as error:  # noqa: BLE001 - it is the program's, and may be anything
            if monotonic() - began >= self._patience:
                self._late = True
                return f"<{name}, whose repr did not end within {self._patience:g} s>"
            self._unended.pop(address, None)
            return f"<{name}, whose repr raised {name_of(type(error))}>"
        self._unended.pop(address, None)
        return _cut(text, OWN_WORDS)

    def _list(self, value: list[object], kind: type) -> str:
        text = f"[{self._items(list.__iter__(value), list.__len__(value))}]"
        return text if kind is list else f"{name_of(kind)}({text})"

    def _tuple(self, value: tuple[object, ...], kind: type) -> str:
        count = tuple.__len__(value)
        fields = _found(kind, "_fields")
        if type(fields) is tuple and len(fields) == count:
            return f"{name_of(kind)}({self._pairs(dict(zip(fields, tuple.__iter__(value), strict=True)))})"
        text = self._items(tuple.__iter__(value), count)
        text = f"({text},)" if count == 1 and text else f"({text})"
        return text if kind is tuple else f"{name_of(kind)}{text}"

    def _set(self, value: set[object], kind: type) -> str:
        text = f"{{{self._items(set.__iter__(value), set.__len__(value))}}}" if set.__len__(value) else ""
        return text if text and kind is set else f"{name_of(kind)}({text})"

    def _frozenset(self, value: frozenset[object], kind: type) -> str:
        count = frozenset.__len__(value)
        text = f"{{{self._items(frozenset.__iter__(value), count)}}}" if count else ""
        return f"{name_of(kind)}({text})"

    def _dict(self, value: dict[object, object], kind: type) -> str:
        shown = list(islice(dict.items(value), self._wanted()))
        texts = []
        for key, item in shown:
            if self._written > LONGEST:
                break
            texts.append(f"{self.of(key)}: {self.of(item)}")
        text = f"{{{_listed(texts, dict.__len__(value))}}}"
        return text if kind is dict else f"{name_of(kind)}({text})"

    def _deque(self, value: deque[object], kind: type) -> str:
        return f"{name_of(kind)}([{self._items(deque.__iter__(value), deque.__len__(value))}])"

    def _exception(self, value: BaseException, kind: type) -> str:
        if _found(kind, "__repr__") is not BaseException.__repr__:
            return self._own_words(value, kind)
        arguments = BaseException.__dict__["args"].__get__(value)
        return f"{name_of(kind)}({self._items(iter(arguments), len(arguments))})"

    def _method(self, value: MethodType, _kind: type) -> str:
        return f"<bound method of {self.of(value.__func__)}>"

    def _items(self, items: Iterable[object], count: int) -> str:
        texts = []
        # All at once: another thread may change the container between two bytecodes.
        for item in list(islice(items, self._wanted())):
            if self._written > LONGEST:
                break
            texts.append(self.of(item))
        return _listed(texts, count)

    def _pairs(self, attributes: dict[str, object]) -> str:
        texts = []
        for name, item in list(islice(attributes.items(), self._wanted())):
            if self._written > LONGEST:
                break
            texts.append(f"{name}={self.of(item)}")
        return _listed(texts, len(attributes))

    def _wanted(self) -> int:
        return ITEMS if len(self._around) <= DEPTH else 0


def _listed(texts: list[str], count: int) -> str:
    if count > len(texts):
        texts.append(f"… {count - len(texts)} more")
    return ", ".join(texts)


def _cut(text: str, limit: int) -> str:
    length = str.__len__(text)
    first = str.__getitem__(text, slice(limit))
    return first if length <= limit else f"{first}… ({length - limit} more)"


def _number(value: int) -> str:
    bits = int.bit_length(value)
    return f"<int of {bits} bits>" if bits > BITS else _cut(int.__repr__(value), TEXT)


def _text(value: str) -> str:
    more = str.__len__(value) - TEXT
    shown = str.__repr__(str.__getitem__(value, slice(TEXT)))
    return f"{shown}… ({more} more)" if more > 0 else shown


def _bytes(value: bytes) -> str:
    more = bytes.__len__(value) - TEXT
    shown = bytes.__repr__(bytes.__getitem__(value, slice(TEXT)))
    return f"{shown}… ({more} more)" if more > 0 else shown


def _bytearray(value: bytearray) -> str:
    more = bytearray.__len__(value) - TEXT
    shown = bytearray.__repr__(bytearray.__getitem__(value, slice(TEXT)))
    return f"{shown}… ({more} more)" if more > 0 else shown


def _function(value: FunctionType) -> str:
    return f"<function {value.__qualname__}>"


def _built_in(value: BuiltinFunctionType) -> str:
    return f"<built-in function {value.__name__}>"


def _module(value: ModuleType) -> str:
    return f"<module {object.__getattribute__(value, '__name__')!r}>"


def _class(value: type) -> str:
    return f"<class '{name_of(value)}'>"


# By the `repr` that a type has: one that Python gave it runs no code of the program.
_PLAIN: dict[int, Callable[[Any], str]] = {
    id(int.__repr__): _number,
    id(str.__repr__): _text,
    id(bytes.__repr__): _bytes,
    id(bytearray.__repr__): _bytearray,
    id(_names_of(FUNCTION)["__repr__"]): _function,
    id(_names_of(BUILT_IN)["__repr__"]): _built_in,
    id(_names_of(MODULE)["__repr__"]): _module,
    id(type.__repr__): _class,
}

# By what a type derives from: these may hold anything, so their own `repr` is not asked.
_BASES: tuple[tuple[type, Callable[[Words, Any, type], str]], ...] = (
    (list, Words._list),
    (tuple, Words._tuple),
    (dict, Words._dict),
    (set, Words._set),
    (frozenset, Words._frozenset),
    (deque, Words._deque),
    (BaseException, Words._exception),
    (type(Words(0, {}).of), Words._method),
)


def _quietly(value: object, kind: type) -> str | None:
    """Tell what Python's own types say of themselves."""
    own = _found(kind, "__repr__")
    if kind in (float, complex, bool, type(None), range, slice, memoryview, type(Ellipsis)):
        return _cut(_repr(value), OWN_WORDS)
    if own is float.__repr__:
        return float.__repr__(value)
    attributes = _attributes(value)
    if attributes and type(_found(kind, "__dict__")) is not property:
        names = ", ".join(list(islice(attributes, ITEMS)))
        return f"<{name_of(kind)} with {names}>"
    return None


def _found(kind: type, name: str) -> object:
    """Look a name up in a class without asking the class."""
    for base in _mro_of(kind):
        names = _names_of(base)
        if name in names:
            return names[name]
    return None


def _attributes(value: object) -> dict[str, object] | None:
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return attributes if type(attributes) is dict else None


def _comes_from(kind: type, module: str, name: str) -> bool:
    return any(name_of(base) == name and _module_of(base) == module for base in _mro_of(kind))


def _is_number_of_numpy(kind: type) -> bool:
    """Scalars lie in the memory of the program, and are small."""
    return any(_comes_from(kind, "numpy", name) for name in ("number", "bool", "bool_"))


def _is_wrapper(kind: type) -> bool:
    return _comes_from(kind, "collections", "UserDict") or _comes_from(kind, "collections", "UserList")


def _holds_data(kind: type) -> bool:
    module = _module_of(kind)
    is_module = any(name_of(base) == "Module" for base in _mro_of(kind))
    return type(module) is str and module.partition(".")[0] in DATA and not is_module


def _is_generated(own: object, kind: type) -> bool:
    """Whether a data class or `attrs` wrote this `repr`: it would ask each field for its own."""
    if type(own) is not FUNCTION:
        return False
    if _found(kind, "__dataclass_fields__"):
        own = getattr(own, "__wrapped__", None)
    file = own.__code__.co_filename if type(own) is FUNCTION else ""
    return file == "<string>" or file.startswith("<attrs generated")


def _metadata(value: object, kind: type) -> str | None:
    """Tell what holds data by its shape, type and device. None for anything else."""
    attributes = _attributes(value) or {}
    has = {name for name in ("shape", "dtype", "dtypes", "device") if name in attributes or _found(kind, name)}
    if "shape" not in has or len(has) == 1:
        return None
    shape: object = getattr(value, "shape")  # noqa: B009 - what it is was just looked up
    if callable(shape):
        return None
    number = None if shape else scalar(value)
    if number is not None:
        return number
    parts = [f"shape={_shape(shape)}"]
    for name in ("dtype", "device"):
        part = getattr(value, name) if name in has else None
        if part is not None and not (callable(part) and type(part) is not type):
            parts.append(f"{name}={_short(part)}")
    return f"{name_of(kind)}({', '.join(parts)})"


def _shape(shape: object) -> str:
    if tuple not in _mro_of(type(shape)):
        return _cut(str(shape), METADATA)
    sizes = [int.__repr__(size) if int in _mro_of(type(size)) else "?" for size in islice(shape, ITEMS)]  # type: ignore[call-overload]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def _short(part: object) -> str:
    text = name_of(part) if isinstance(part, type) else str(part)
    return _cut(text.removeprefix("torch."), METADATA)
