"""Finds where code writes a variable, and tells tensors by numbers. Runs in the target, called by watches.rs alone."""

from __future__ import annotations

import opcode
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
# What an instruction is followed by, in code units; told by number in 3.12, by name later.
_CACHES: Any = getattr(opcode, "_inline_cache_entries", {})
_JUMPS = frozenset((*opcode.hasjrel, *opcode.hasjabs))
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
    found = []
    if name in code.co_varnames or name in code.co_cellvars or name in code.co_freevars:
        found.append((code, _stores_in(code, name)))
    for inner in code.co_consts:
        if type(inner) is CODE and name in inner.co_freevars:
            found += stores(inner, name)
    return found


def variables(code: CodeType) -> list[str]:
    """Name the variables of a function."""
    return [*code.co_varnames, *code.co_cellvars, *code.co_freevars]


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
        places.append((end if opcode.opname[op] == "GEN_START" else begin, code.co_firstlineno, AFTER))
    for index, (begin, at, end, op, arg) in enumerate(instructions):
        word = opcode.opname[op]
        if word == "LOAD_FAST_AND_CLEAR" and code._varname_from_oparg(arg) == name:  # type: ignore[attr-defined]
            is_aside, loops = True, 0
        elif word in ("FOR_ITER", "GET_AITER"):
            loops += 1
        elif word in ("END_FOR", "END_ASYNC_FOR"):
            loops -= 1
        elif word == "RESUME" and arg & 3 == 0 and name in _arguments(code):
            places.append((end, code.co_firstlineno, AFTER))
        elif name in _written(code, word, arg):
            after = opcode.opname[instructions[index + 1][3]] if index + 1 < len(instructions) else ""
            if is_aside or after == "RERAISE":
                is_aside = is_aside and loops > 0
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
        if op == opcode.EXTENDED_ARG:
            extended, at = arg << 8, at + 2
            continue
        end = at + 2 + 2 * _caches(op)
        yield begin, at, end, op, arg
        begin, at, extended = end, end, 0


def _caches(op: int) -> int:
    if isinstance(_CACHES, dict):
        return int(_CACHES.get(opcode.opname[op], 0))
    return int(_CACHES[op])


def _target(op: int, end: int, arg: int) -> int:
    is_backward = "JUMP_BACKWARD" in opcode.opname[op]
    return end - 2 * arg if is_backward else end + 2 * arg


class Sample:
    """An object whose attribute is written to see whether that is told."""

    def __init__(self) -> None:
        self.value = 0


def statistics(value: object) -> str | None:
    """Tell the numbers in a tensor; None when it has none, or they cannot be had."""
    tensor: Any = value
    torch: Any = sys.modules.get("torch")
    try:
        with torch.no_grad():
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
