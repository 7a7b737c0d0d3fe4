"""Finds where code writes a variable, and tells tensors by numbers. Runs in the target, called by watches.rs alone."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from dis import Instruction
    from types import CodeType
    from typing import Any

CODE = type((lambda: None).__code__)
# `inspect.CO_VARARGS`, `CO_VARKEYWORDS`
VARARGS, VARKEYWORDS = 4, 8
# What `opcode` knows of the instructions that matter here: the numbers of those named, jumps back, other jumps, and
# what follows an instruction, in code units. A program may be packed without that module.
_NAMED = (
    *("STORE_FAST", "DELETE_FAST", "STORE_DEREF", "DELETE_DEREF", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"),
    *("LOAD_FAST_AND_CLEAR", "FOR_ITER", "GET_ANEXT", "END_FOR", "END_ASYNC_FOR", "RESUME", "RERAISE", "GEN_START"),
    "EXTENDED_ARG",
)
_Numbers = tuple[int, ...]
_OPCODES: dict[int, tuple[_Numbers, _Numbers, _Numbers, dict[int, int]]] = {
    10: (
        (125, 126, 137, 138, -1, -1, -1, 93, 51, -1, 54, -1, 119, 129, 144),
        (),
        (93, 110, 111, 112, 113, 114, 115, 121, 122, 143, 154),
        {},
    ),
    11: (
        (125, 126, 138, 139, -1, -1, -1, 93, 51, -1, 54, 151, 119, -1, 144),
        (134, 140, 173, 174, 175, 176),
        (93, 110, 111, 112, 114, 115, 123, 128, 129),
        {25: 4, 60: 1, 92: 1, 95: 4, 106: 4, 107: 2, 116: 5, 122: 1, 160: 10, 166: 1, 171: 4},
    ),
    12: (
        (125, 126, 138, 139, -1, -1, 143, 93, 51, 4, 54, 151, 119, -1, 144),
        (134, 140),
        (93, 110, 114, 115, 123, 128, 129),
        {25: 1, 60: 1, 92: 1, 93: 1, 95: 4, 106: 9, 107: 1, 116: 4, 122: 1, 123: 1, 141: 1, 171: 3},
    ),
    13: (
        (110, 65, 109, 64, 111, 112, 86, 72, 18, 11, 10, 149, 102, -1, 71),
        (77, 78),
        (72, 79, 97, 98, 99, 100, 104),
        {
            5: 1,
            39: 1,
            40: 3,
            45: 1,
            53: 3,
            58: 1,
            59: 1,
            72: 1,
            77: 1,
            82: 9,
            91: 4,
            93: 1,
            97: 1,
            98: 1,
            99: 1,
            100: 1,
            104: 1,
            108: 4,
            117: 1,
        },
    ),
    14: (
        (112, 63, 111, 62, 113, 114, 85, 70, 15, 9, 68, 128, 105, -1, 69),
        (75, 76),
        (68, 70, 77, 100, 101, 102, 103, 106),
        {
            38: 1,
            39: 3,
            44: 5,
            52: 3,
            55: 3,
            56: 1,
            57: 1,
            70: 1,
            75: 1,
            80: 9,
            92: 4,
            96: 1,
            100: 1,
            101: 1,
            102: 1,
            103: 1,
            106: 1,
            110: 4,
            119: 1,
        },
    ),
}
if sys.version_info.minor not in _OPCODES:
    raise NotImplementedError(
        f"no watches of variables on Python 3.{sys.version_info.minor}: its bytecode is not known"
    )
_numbers, _BACKWARD, _forward, _CACHES = _OPCODES[sys.version_info.minor]
_NAMES = dict(zip(_numbers, _NAMED, strict=True))
_JUMPS = frozenset((*_BACKWARD, *_forward))
_WRITES = frozenset(
    ("STORE_FAST", "DELETE_FAST", "STORE_DEREF", "DELETE_DEREF", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST")
)
# When a place tells of a write: behind it, or behind it if it was met just before.
AFTER, GUARDED, BEFORE = 0, 1, 2
# Tensors of so few numbers are told by all of them.
FEW = 8
# How Python calls what changes an object in place.
_IN_PLACE = {
    "+=": "__iadd__",
    "-=": "__isub__",
    "*=": "__imul__",
    "/=": "__itruediv__",
    "//=": "__ifloordiv__",
    "%=": "__imod__",
    "**=": "__ipow__",
    "@=": "__imatmul__",
    "&=": "__iand__",
    "|=": "__ior__",
    "^=": "__ixor__",
    "<<=": "__ilshift__",
    ">>=": "__irshift__",
}
_operations: dict[tuple[CodeType, int], str | None] = {}


def stores(code: CodeType, name: str) -> list[tuple[CodeType, list[tuple[int, int, int]]]]:
    """Give the codes that write a variable of a function: places, the lines of the writes, and when they tell."""
    if name not in _names_in(code) or is_comprehended(code, name):
        return []
    found = [(code, _stores_in(code, name))]
    for inner in code.co_consts:
        if type(inner) is CODE and name in inner.co_freevars:
            found += stores(inner, name)
    return found


def variables(code: CodeType) -> list[str]:
    """Name the variables of a function, without those that only a comprehension inside it has."""
    return [name for name in _names_in(code) if not is_comprehended(code, name)]


def _names_in(code: CodeType) -> tuple[str, ...]:
    return (*code.co_varnames, *code.co_cellvars, *code.co_freevars)


def is_comprehended(code: CodeType, name: str) -> bool:
    """Tell whether a variable belongs to a comprehension alone: from 3.12 on its code is part of the function's."""
    if sys.version_info < (3, 12) or name in code.co_freevars:
        return False
    instructions = _instructions(code.co_code)
    cleared = (arg for _, _, _, op, arg in instructions if _NAMES.get(op) == "LOAD_FAST_AND_CLEAR")
    name_of = code._varname_from_oparg  # type: ignore[attr-defined]
    return any(name_of(arg) == name for arg in cleared) and not _stores_in(code, name)


def _stores_in(code: CodeType, name: str) -> list[tuple[int, int, int]]:
    raw = code.co_code
    instructions = list(_instructions(raw))
    # Before, a call stands behind each write (sites.py), which no jump leads to.
    has_guards = sys.version_info >= (3, 12)
    jumps = ((op, end, arg) for _, _, end, op, arg in instructions if op in _JUMPS and has_guards)
    targets = {_target(*jump) for jump in jumps}
    lines = [(start, end, line) for start, end, line in code.co_lines() if line]
    places: list[tuple[int, int, int]] = []
    # A comprehension inside may have a variable of this name: it puts the function's aside, and back at its end.
    is_aside, loops = False, 0
    if sys.version_info < (3, 11) and name in _arguments(code):
        begin, _, end, op, _ = instructions[0]
        places.append((end if _NAMES.get(op, "") == "GEN_START" else begin, code.co_firstlineno, AFTER))
    for index, (begin, at, end, op, arg) in enumerate(instructions):
        word = _NAMES.get(op, "")
        if word == "LOAD_FAST_AND_CLEAR" and code._varname_from_oparg(arg) == name:  # type: ignore[attr-defined]
            is_aside, loops = True, 0
        elif word in ("FOR_ITER", "GET_ANEXT"):
            loops += 1
        elif word in ("END_FOR", "END_ASYNC_FOR"):
            loops -= 1
        elif word == "RESUME" and arg & 3 == 0 and name in _arguments(code):
            places.append((end, code.co_firstlineno, AFTER))
        elif name in _written(code, word, arg):
            after = _NAMES.get(instructions[index + 1][3], "") if index + 1 < len(instructions) else ""
            if after == "RERAISE":
                continue
            if is_aside:
                is_aside = loops > 0
                continue
            line = next((line for start, stop, line in lines if start <= at < stop), code.co_firstlineno)
            if end in targets:
                places.append((begin, line, BEFORE))
                places.append((end, line, GUARDED))
            else:
                places.append((end, line, AFTER))
    return places


def _written(code: CodeType, word: str, arg: int) -> tuple[str, ...]:
    """Name the variables that an instruction writes."""
    if word not in _WRITES:
        return ()
    if sys.version_info < (3, 11):
        shared = (*code.co_cellvars, *code.co_freevars)
        return (shared[arg] if word.endswith("DEREF") else code.co_varnames[arg],)
    name_of = code._varname_from_oparg  # type: ignore[attr-defined]
    if word == "STORE_FAST_LOAD_FAST":
        return (name_of(arg >> 4),)
    if word == "STORE_FAST_STORE_FAST":
        return (name_of(arg >> 4), name_of(arg & 15))
    return (name_of(arg),)


def _arguments(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & VARARGS) + bool(code.co_flags & VARKEYWORDS)
    return code.co_varnames[:count]


def _instructions(raw: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Give where each instruction begins, with what makes its argument longer, is, and ends; itself; its argument."""
    begin = at = extended = 0
    while at < len(raw):
        op, arg = raw[at], raw[at + 1] | extended
        if _NAMES.get(op) == "EXTENDED_ARG":
            extended, at = arg << 8, at + 2
            continue
        end = at + 2 + 2 * _CACHES.get(op, 0)
        yield begin, at, end, op, arg
        begin, at, extended = end, end, 0


def _target(op: int, end: int, arg: int) -> int:
    return end - 2 * arg if op in _BACKWARD else end + 2 * arg


class Sample:
    """An object whose attribute is written to see whether that is told."""

    def __init__(self) -> None:
        self.value = 0


def statistics(value: object) -> str | None:
    """Tell the numbers in a tensor; None when it has none, or they cannot be had."""
    tensor: Any = value
    torch: Any = sys.modules.get("torch")
    try:
        # The program's own modes count, profile or replace what they hear.
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.no_grad():
            data = tensor.detach()
            if data.numel() == 0 or data.is_complex():
                return None
            if data.numel() <= FEW:
                return f"values={data.tolist()}"
            data = data.to(torch.float64 if data.dtype == torch.float64 else torch.float32)
            finite = data[torch.isfinite(data)]
            odd = data.numel() - finite.numel()
            parts = [("min", finite.min()), ("max", finite.max()), ("mean", finite.mean())] if finite.numel() else []
            if finite.numel() > 1:
                parts.append(("std", finite.std()))
            texts = [f"{name}={float(value):.6g}" for name, value in parts]
            return " ".join([*texts, f"nonfinite={odd}"] if odd else texts)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return None


def operation(code: CodeType, line: int) -> str | None:
    """Name what a line does to tensors in place: methods whose names end with ``_``, assignments to items, ``+=``."""
    if len(_operations) > 1000:
        _operations.clear()
    if (code, line) not in _operations:
        _operations[code, line] = _operation(code, line)
    return _operations[code, line]


def _operation(code: CodeType, line: int) -> str | None:
    import dis

    names = []
    at = None
    for instruction in dis.get_instructions(code):
        starts = instruction.starts_line
        if starts is not None and not isinstance(starts, bool):
            at = starts
        elif starts:
            at = getattr(instruction, "line_number", at)
        if at != line:
            continue
        name = _in_place(instruction)
        if name is not None and name not in names:
            names.append(name)
    return ", ".join(names) or None


def _in_place(instruction: Instruction) -> str | None:
    told = instruction.argval
    if instruction.opname == "STORE_SUBSCR":
        return "__setitem__"
    if instruction.opname == "BINARY_OP":
        return _IN_PLACE.get(instruction.argrepr)
    if instruction.opname.startswith("INPLACE_"):
        return f"__i{instruction.opname[8:].lower().replace('subtract', 'sub').replace('multiply', 'mul')}__"
    if isinstance(told, str) and instruction.opname.startswith("LOAD_") and "CONST" not in instruction.opname:
        name = told.rpartition(".")[2]
        return name if name.endswith("_") and not name.endswith("__") else None
    return None
