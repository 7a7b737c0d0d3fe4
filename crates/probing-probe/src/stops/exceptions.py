"""Hears of exceptions that nobody catches. Runs inside the target, called by exceptions.rs alone.

Hooks that were there before still run, with the same arguments; what goes wrong in ours goes nowhere.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    Tell = Callable[[str, BaseException], object]

# Of one chain of exceptions.
CHAIN = 10
# Of one message, in characters.
MESSAGE = 2000


class Hooks:
    """The hooks that Python has for such exceptions, with ours before them."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._set: list[tuple[Any, str, Any, Any]] = []

    def set(self) -> None:
        """Put ours before those that are there."""
        self._before(sys, "excepthook", lambda _kind, value, _traceback: ("main", value))
        self._before(sys, "unraisablehook", lambda raised: ("unraisable", raised.exc_value))
        threading = sys.modules.get("threading")
        if threading is not None:
            self._before(threading, "excepthook", lambda raised: ("thread", raised.exc_value))
        asyncio: Any = sys.modules.get("asyncio.base_events")
        if asyncio is not None:
            told = lambda _loop, context: ("task", context.get("exception"))  # noqa: E731
            self._before(asyncio.BaseEventLoop, "call_exception_handler", told)

    def unset(self) -> None:
        """Take ours out, unless somebody has put another before it; then it only passes on."""
        self._tell = lambda _kind, _exception: None
        for owner, name, hook, before in self._set:
            if vars(owner).get(name) is hook:
                setattr(owner, name, before)
        self._set.clear()

    def _before(self, owner: object, name: str, read: Callable[..., tuple[str, Any]]) -> None:
        before = getattr(owner, name)

        def hook(*args: object) -> object:
            try:
                kind, exception = read(*args)
                if isinstance(exception, BaseException):
                    self._tell(kind, exception)
            except Exception:  # noqa: BLE001 - ours must not hide the program's
                pass
            return before(*args)

        setattr(owner, name, hook)
        self._set.append((owner, name, hook, before))


def is_a(exception: object, wanted: str) -> bool:
    """Tell whether an exception's class, or one that it derives from, is called so."""
    kind = exception if isinstance(exception, type) else type(exception)
    for base in type.__dict__["__mro__"].__get__(kind):
        full = f"{base.__module__}.{base.__qualname__}"
        if wanted in (base.__name__, full) or full.endswith(f".{wanted}"):
            return True
    return False


def described(exception: BaseException) -> tuple[str, str]:
    """Tell the class of an exception, with its module, and what it says."""
    kind = type(exception)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(exception)
    except Exception as error:  # noqa: BLE001 - it is the program's
        message = f"<its message raised {type(error).__name__}>"
    return name, message if len(message) <= MESSAGE else f"{message[:MESSAGE]}…"


def chain(exception: BaseException) -> list[tuple[str, str]]:
    """Tell the exceptions that it came from, nearest first."""
    found: list[tuple[str, str]] = []
    seen = {id(exception)}
    while len(found) < CHAIN:
        before = exception.__cause__ or (None if exception.__suppress_context__ else exception.__context__)
        if before is None or id(before) in seen:
            break
        seen.add(id(before))
        found.append(described(before))
        exception = before
    return found


def frames(exception: BaseException) -> list[object]:
    """Give the frames that an exception came through, innermost first."""
    found: list[object] = []
    traceback: TracebackType | None = exception.__traceback__
    while traceback is not None:
        found.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return found[::-1]
