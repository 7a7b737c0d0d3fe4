"""Looks at live objects without running code of theirs. Runs inside the target, called by objects.rs alone.

An attribute is looked for where it is stored, as ``inspect.getattr_static`` does: a property, ``__getattr__`` or a
``__dir__`` of the program never runs because somebody pressed a key. What can only be known by running it is left out.
"""

import builtins
import sys
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)

Step = tuple[str, object]
Names = dict[str, object]

# More is of no use to anybody who presses a key.
MOST = 1000
LONGEST = 200
MISSING = object()
FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, staticmethod, classmethod, type(len), type(str.join))
# Where torch.nn.Module keeps what its __getattr__ finds.
MODULE_PARTS = ("_parameters", "_buffers", "_modules")

_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__


def complete(steps: list[Step], look: str, prefix: str, own: Names, names: Names) -> list[tuple[str, str]]:
    """Tell ``(text, kind)`` of everything at the end of ``steps`` that begins with ``prefix``."""
    if look == "modules":
        found = dict.fromkeys(_module_names(prefix), "module")
    elif look == "own":
        found = {name: _kind(value) for name, value in list(own.items()) if _is_name(name) and _kind(value) != "module"}
    elif look == "names":
        found = {name: _kind(value) for name, value in {**vars(builtins), **names}.items() if _is_name(name)}
    else:
        value = follow(steps, names)
        if value is MISSING:
            return []
        found = _keys(value, prefix) if look == "keys" else _attributes(value)
    if look != "keys":
        found = {name: kind for name, kind in found.items() if name.startswith(prefix)}
        if not prefix:
            found = {name: kind for name, kind in found.items() if not name.startswith("_")}
    return sorted(found.items(), key=lambda pair: (pair[0].startswith("_"), pair[0]))[:MOST]


def follow(steps: list[Step], names: Names) -> object:
    """Find the object at the end of ``steps``, or ``MISSING``."""
    value: object = MISSING
    for index, (kind, key) in enumerate(steps):
        if kind == "module":
            value = sys.modules.get(str(key), MISSING)
        elif index == 0:
            value = names.get(str(key), vars(builtins).get(str(key), MISSING))
        elif kind == "name":
            value = _attribute(value, str(key))
        else:
            value = _item(value, key)
        if value is MISSING:
            break
    return value


def _attribute(value: object, name: str) -> object:
    own = _own_dict(value)
    if name in own:
        return own[name]
    for part in _module_parts(own):
        if name in part:
            return part[name]
    if _is(value, type):
        for base in _mro(value):
            if name in _class_dict(base):
                return _plain(_class_dict(base)[name])
    for base in _mro(type(value)):
        if name in _class_dict(base):
            entry = _class_dict(base)[name]
            if type(entry) is MemberDescriptorType:
                try:
                    return entry.__get__(value)
                except AttributeError:
                    return MISSING
            return _plain(entry)
    return MISSING


def _plain(entry: object) -> object:
    """What a class holds, unless it is something that is run to give a value."""
    if type(entry) in (staticmethod, classmethod):
        return entry.__func__  # type: ignore[attr-defined]
    if type(entry) in FUNCTIONS or _is(entry, type):
        return entry
    has_get = any("__get__" in _class_dict(base) for base in _mro(type(entry)))
    return MISSING if has_get else entry


def _item(value: object, key: object) -> object:
    try:
        if _is(value, dict):
            return dict.__getitem__(value, key)  # type: ignore[index]
        if _is(value, list):
            return list.__getitem__(value, key)  # type: ignore[call-overload]
        if _is(value, tuple):
            return tuple.__getitem__(value, key)  # type: ignore[call-overload]
        # torch.nn.Sequential and ModuleList
        return dict.__getitem__(_own_dict(value)["_modules"], str(key))  # type: ignore[index]
    except (LookupError, TypeError):
        return MISSING


def _attributes(value: object) -> dict[str, str]:
    found: dict[str, str] = {}
    classes = [*(_mro(value) if _is(value, type) else ()), *_mro(type(value))]
    for base in reversed(classes):
        for name, entry in _class_dict(base).items():
            if _is_name(name):
                found[name] = _kind(entry)
    own = _own_dict(value)
    for names in (own, *_module_parts(own)):
        for name, entry in list(names.items()):
            if _is_name(name):
                found[name] = _kind(entry)
    return found


def _keys(value: object, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    if _is(value, dict):
        keys: list[object] = list(dict.keys(value))[: 10 * MOST]  # type: ignore[arg-type]
        for key in keys:
            if type(key) in (str, int, float, bool, bytes) and str(key).startswith(prefix):
                found[repr(key)] = "key"
    return found


def _module_names(prefix: str) -> list[str]:
    depth = prefix.count(".") + 1
    names = {*list(sys.modules), *sys.builtin_module_names, *sys.stdlib_module_names}
    # A module that is loaded tells its packages, too.
    return sorted({".".join(name.split(".")[:depth]) for name in names if name.startswith(prefix)})


def _own_dict(value: object) -> Names:
    """The ``__dict__`` of an object, unless its class has a say in that."""
    if _is(value, type):
        return dict(_class_dict(value))
    for base in _mro(type(value)):
        entry = _class_dict(base).get("__dict__")
        if entry is None:
            continue
        if type(entry) in (GetSetDescriptorType, MemberDescriptorType):
            own = entry.__get__(value)
            return own if type(own) is dict else {}
        break
    return {}


def _module_parts(own: Names) -> list[Names]:
    parts = [own.get(name) for name in MODULE_PARTS]
    return [part for part in parts if _is(part, dict)] if None not in parts else []  # type: ignore[misc]


def _kind(value: object) -> str:
    if type(value) in FUNCTIONS:
        return "function"
    if _is(value, type):
        return "class"
    if _is(value, ModuleType):
        return "module"
    if type(value) in (property, GetSetDescriptorType, MemberDescriptorType):
        return "property"
    return str(type.__dict__["__name__"].__get__(type(value)))


def _is(value: object, kind: type) -> bool:
    # `isinstance` would ask a `__class__` of the program.
    return issubclass(type(value), kind)


def _is_name(value: object) -> bool:
    return type(value) is str and value.isidentifier()


def describe(steps: list[Step], names: Names) -> tuple[str, dict[str, object], list[tuple[str, str]]] | None:
    """Tell ``(type, {signature, doc, file, lineno}, facts)`` of the object at the end of ``steps``."""
    value = follow(steps, names)
    if value is MISSING:
        return None
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    told: dict[str, object] = {}
    subject = value if callable(value) or _is(value, ModuleType) else kind
    doc = subject.__doc__ if type(subject) in FUNCTIONS else _attribute(subject, "__doc__")
    if type(doc) is str:
        told["doc"] = doc
    try:
        import inspect
    except ImportError:
        # A program that was packed without it.
        return name, told, _facts(value)
    if "doc" in told:
        told["doc"] = inspect.cleandoc(doc)  # type: ignore[arg-type]
    # With `inspect` there is `contextlib`, which it imports.
    from contextlib import suppress

    with suppress(TypeError, ValueError):
        told["signature"] = str(inspect.signature(value))  # type: ignore[arg-type]
    with suppress(TypeError, OSError):
        told["file"] = inspect.getsourcefile(subject)  # type: ignore[arg-type]
        if not _is(value, ModuleType):
            told["lineno"] = inspect.getsourcelines(subject)[1]  # type: ignore[arg-type]
    return name, told, _facts(value)


def _facts(value: object) -> list[tuple[str, str]]:
    """What is cheap and safe to know of a value; the data of a tensor is not."""
    if type(value) in (int, float, bool, str, bytes, complex, type(None)):
        try:
            shown = repr(value)
        except ValueError:  # an int with too many digits
            shown = "…"
        return [("value", shown if len(shown) <= LONGEST else shown[:LONGEST] + "…")]
    if type(value) in (list, tuple, dict, set, frozenset, bytearray):
        return [("length", str(len(value)))]  # type: ignore[arg-type]
    module = str(_class_dict(type(value)).get("__module__", ""))
    if module.split(".")[0] in ("torch", "numpy", "jax", "jaxlib", "tensorflow", "cupy"):
        names = ("shape", "dtype", "device", "requires_grad")
        return [(name, str(getattr(value, name))) for name in names if hasattr(value, name)]
    return []
