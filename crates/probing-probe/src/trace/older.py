"""Makes code that tells when it runs, for Pythons without `sys.monitoring`.

Runs inside the target, called by older.rs alone.
"""

from __future__ import annotations

import ast
import sys
from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

# Flags of code objects, as `inspect` knows them.
VARARGS, VARKEYWORDS, GENERATOR, COROUTINE, ASYNC_GENERATOR = 0x4, 0x8, 0x20, 0x80, 0x200
# What stands for our object until it is put among the constants.
MARK = "<probing: told>"
RESULT = "_probing_result"

PLAIN = """
    {mark}.enter()
    try:
        {result} = {mark}.function({arguments})
    except BaseException as {error}:
        {mark}.unwound({error})
        raise
    {mark}.left({result})
    return {result}
"""
GENERATOR_BODY = """
    return (yield from {mark}.around({mark}.function({arguments})))
"""
COROUTINE_BODY = """
    return await {mark}.around({mark}.function({arguments}))
"""
ASYNC_GENERATOR_BODY = """
    {result} = {mark}.function({arguments})
    try:
        {step} = {mark}.step({result}.asend(None), True)
        while True:
            try:
                {value} = await {step}
            except StopAsyncIteration:
                return
            try:
                {step} = {mark}.step({result}.asend((yield {value})), False)
            except GeneratorExit:
                raise
            except BaseException as {error}:
                {step} = {mark}.step({result}.athrow({error}), False)
    finally:
        await {result}.aclose()
"""


def original(function: FunctionType, code: CodeType) -> FunctionType:
    """Make a function that does what this one did with that code."""
    made = FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
    made.__qualname__ = function.__qualname__
    return made


def telling(code: CodeType, probe: object) -> CodeType | None:
    """Make code that calls `probe.function`, with the same parameters and free variables; None where that cannot be."""
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
    body = body.format(
        mark=repr(MARK),
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
        *body.splitlines(),
        " return told",
    ]
    tree = ast.parse("\n".join(lines))
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = code.co_firstlineno  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    names_made: dict[str, object] = {}
    exec(compile(tree, code.co_filename, "exec", dont_inherit=True), names_made)
    made = names_made["around"]().__code__  # type: ignore[operator]
    changes: dict[str, object] = {
        "co_consts": tuple(probe if constant == MARK else constant for constant in made.co_consts),
        "co_name": code.co_name,
    }
    if sys.version_info >= (3, 11):
        changes["co_qualname"] = code.co_qualname
    return made.replace(**changes)  # type: ignore[arg-type]
