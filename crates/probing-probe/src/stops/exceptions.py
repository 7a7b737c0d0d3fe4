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
    """The hooks that Python has for such exceptions, with ours before them.

    Ours are kept for good, and used again where the same hook of the program's is behind them: Python may be about to
    call one that was just taken out.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._is_on = False
        # Owner, name, ours, and the one behind it.
        self._made: list[tuple[Any, str, Any, Any]] = []

    def set(self) -> None:
        """Put ours before those that are there."""
        self._is_on = True
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
        self._is_on = False
        for owner, name, hook, before in self._made:
            if vars(owner).get(name) is hook:
                setattr(owner, name, before)

    def _before(self, owner: object, name: str, read: Callable[..., tuple[str, Any]]) -> None:
        before = getattr(owner, name)
        known = [made for made in self._made if made[0] is owner and made[1] == name]
        if any(hook is before for _, _, hook, _ in known):
            # Still there: somebody has put it back.
            return
        hook = next((hook for _, _, hook, behind in known if behind is before), None)
        if hook is None:
            hook = self._new(before, read)
            self._made.append((owner, name, hook, before))
        setattr(owner, name, hook)

    def _new(self, before: Callable[..., object], read: Callable[..., tuple[str, Any]]) -> Callable[..., object]:
        def hook(*args: object) -> object:
            try:
                if self._is_on:
                    kind, exception = read(*args)
                    if isinstance(exception, BaseException):
                        self._tell(kind, exception)
            except Exception:  # noqa: BLE001 - ours must not hide the program's
                pass
            return before(*args)

        return hook


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
