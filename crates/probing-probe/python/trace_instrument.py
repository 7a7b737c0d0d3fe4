"""Makes code that tells when it runs, for Pythons without `sys.monitoring`.

Runs inside the target, called by older.rs alone.
"""

import sys
from _ast import AST, PyCF_ONLY_AST
from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType
    from typing import Any

LOAD_CONST, LOAD_FAST = 100, 124
# Flags of code objects, as `inspect` knows them.
VARARGS, VARKEYWORDS, GENERATOR, COROUTINE, ASYNC_GENERATOR = 0x4, 0x8, 0x20, 0x80, 0x200
# Variables that stand for our objects until they are constants: what tells, the function, and sites, which are told by
# being asked whether they are true, and shown what the function ends with by being asked for an item.
OURS = ("_probing_told", "_probing_function", "_probing_called", "_probing_left", "_probing_unwound")
RESULT = "_probing_result"

PLAIN = """
    if {called}:
        pass
    try:
        {result} = {function}({arguments})
    except BaseException as {error}:
        if {unwound}:
            {unwound}[{error}]
        raise
    if {left}:
        {left}[{result}]
    return {result}
"""
GENERATOR_BODY = """
    return (yield from {told}.around({function}({arguments})))
"""
COROUTINE_BODY = """
    return await {told}.around({function}({arguments}))
"""
ASYNC_GENERATOR_BODY = """
    {result} = {function}({arguments})
    try:
        {step} = {told}.step({result}.asend(None), True)
        while True:
            try:
                {value} = await {step}
            except StopAsyncIteration:
                return
            try:
                {step} = {told}.step({result}.asend((yield {value})), False)
            except GeneratorExit:
                raise
            except BaseException as {error}:
                {step} = {told}.step({result}.athrow({error}), False)
    finally:
        await {result}.aclose()
"""


def original(function: FunctionType, code: CodeType) -> FunctionType:
    """Make a function that does what this one did with that code."""
    made = FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
    made.__qualname__ = function.__qualname__
    return made


def telling(code: CodeType, ours: tuple[object, ...]) -> CodeType | None:
    """Make code that calls the function among `ours` and tells the others; None where that cannot be.

    It has the parameters and free variables of this one.
    """
    names = code.co_varnames
    if not all(name.isidentifier() for name in (*names, *code.co_freevars)):
        return None
    count, only = code.co_argcount, code.co_kwonlyargcount
    positional, keywords = names[:count], names[count : count + only]
    rest = names[count + only :]
    star = rest[0] if code.co_flags & VARARGS else None
    double = rest[1 if star else 0] if code.co_flags & VARKEYWORDS else None
    parameters = [*positional]
    if code.co_posonlyargcount:
        parameters.insert(code.co_posonlyargcount, "/")
    if star or keywords:
        parameters.append(f"*{star or ''}")
    parameters += keywords
    arguments = [*positional, *([f"*{star}"] if star else []), *(f"{name}={name}" for name in keywords)]
    if double:
        parameters.append(f"**{double}")
        arguments.append(f"**{double}")
    flags = code.co_flags
    body, prefix = PLAIN, ""
    if flags & GENERATOR:
        body = GENERATOR_BODY
    elif flags & COROUTINE:
        body, prefix = COROUTINE_BODY, "async "
    elif flags & ASYNC_GENERATOR:
        body, prefix = ASYNC_GENERATOR_BODY, "async "
    told, function, called, left, unwound = OURS
    body = body.format(
        told=told,
        function=function,
        called=called,
        left=left,
        unwound=unwound,
        arguments=", ".join(arguments),
        result=RESULT,
        error=f"{RESULT}_error",
        step=f"{RESULT}_step",
        value=f"{RESULT}_value",
    )
    free = ", ".join(code.co_freevars)
    lines = [
        "def around():",
        *(f" {name} = None" for name in code.co_freevars),
        f" {prefix}def told({', '.join(parameters)}):",
        *([f"    if False: {free}"] if free else []),
        f"    if False: {' = '.join(OURS)} = None",
        *body.splitlines(),
        " return told",
    ]
    tree: Any = compile("\n".join(lines), "<probing>", "exec", PyCF_ONLY_AST)
    for node in _nodes(tree):
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = code.co_firstlineno  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    names_made: dict[str, object] = {}
    exec(compile(tree, code.co_filename, "exec", dont_inherit=True), names_made)
    made: CodeType = names_made["around"]().__code__  # type: ignore[operator]
    bytecode = _with_constants(made)
    if bytecode is None:
        return None
    changes: dict[str, object] = {
        "co_code": bytecode,
        "co_consts": (*made.co_consts, *ours),
        "co_name": code.co_name,
    }
    if sys.version_info >= (3, 11):
        changes["co_qualname"] = code.co_qualname
    return made.replace(**changes)  # type: ignore[arg-type]


def _with_constants(made: CodeType) -> bytes | None:
    """Have code load our objects from behind its constants; None where their numbers are too large."""
    bytecode = bytearray(made.co_code)
    for place, name in enumerate(OURS):
        variable, constant = made.co_varnames.index(name), len(made.co_consts) + place
        if max(variable, constant) > 0xFF:
            return None
        for at in range(0, len(bytecode), 2):
            if bytecode[at] == LOAD_FAST and bytecode[at + 1] == variable:
                bytecode[at : at + 2] = bytes((LOAD_CONST, constant))
    return bytes(bytecode)


def _nodes(tree: object) -> Iterator[object]:
    """Give a tree's nodes, as ``ast.walk`` does, which a program may be packed without."""
    if isinstance(tree, AST):
        yield tree
        for field in tree._fields:
            yield from _nodes(getattr(tree, field, None))
    elif isinstance(tree, list):
        for node in tree:
            yield from _nodes(node)
