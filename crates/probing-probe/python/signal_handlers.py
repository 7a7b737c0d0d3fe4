"""Finds a handler of a signal among the frames that an exception came through. Called by handlers.rs alone.

Nothing of the program runs here: a handler is looked at, not asked.
"""

from _functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType
    from typing import Any

Function = type(lambda: 0)
Method = type((lambda: 0).__get__(0))
# Handlers made of handlers, one inside of the other.
DEPTH = 10

_func_of: Any = partial.__dict__["func"].__get__
_mro_of: Any = type.__dict__["__mro__"].__get__
_names_of: Any = type.__dict__["__dict__"].__get__


def handler_in(
    traceback: TracebackType | None, interrupted: FrameType | None, handlers: list[object]
) -> TracebackType | None:
    """Give the traceback from the frame of a handler on.

    Python calls a handler with the frame that it interrupts.
    """
    codes = [code for code in map(_code_of, handlers) if code is not None]
    while traceback is not None:
        frame = traceback.tb_frame
        if any(frame.f_code is code for code in codes) and _was_called_with(frame, interrupted):
            return traceback
        interrupted, traceback = frame, traceback.tb_next
    return None


def _code_of(handler: object) -> CodeType | None:
    """Give the code that begins when a handler is called."""
    for _ in range(DEPTH):
        kind = type(handler)
        if kind is Function:
            return handler.__code__  # type: ignore[attr-defined, no-any-return]
        if kind is Method:
            handler = handler.__func__  # type: ignore[attr-defined]
        elif partial in _mro_of(kind):
            handler = _func_of(handler)
        else:
            named = (_names_of(base) for base in _mro_of(kind))
            handler = next((names["__call__"] for names in named if "__call__" in names), None)
    return None


def _was_called_with(frame: FrameType, interrupted: FrameType | None) -> bool:
    for value in frame.f_locals.values():
        if value is interrupted or (type(value) is tuple and any(each is interrupted for each in value)):
            return True
    return False
