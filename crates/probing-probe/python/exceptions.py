"""Hears of exceptions that nobody catches. Runs inside the target, called by exceptions.rs alone.

Hooks that were there before still run, with the same arguments; what goes wrong in ours goes nowhere.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Any

    Read = Callable[..., tuple[str, Any]]
    Tell = Callable[[Read, tuple[object, ...]], object]

# Of one chain of exceptions.
CHAIN = 10
# Of one message, in characters.
MESSAGE = 2000
# Nothing bears the name.
MISSING = object()

_names_of: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


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

    def _before(self, owner: object, name: str, read: Read) -> None:
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

    def _new(self, before: Callable[..., object], read: Read) -> Callable[..., object]:
        def hook(*args: object) -> object:
            # It raises nothing. What is raised here all the same comes from a signal handler: it is the program's.
            if self._is_on:
                self._tell(read, args)
            return before(*args)

        return hook


def check(wanted: str) -> tuple[bool, str | None]:
    """Tell whether a name can be that of a class of exceptions, and why not, or that none is loaded yet."""
    parts = wanted.split(".")
    known = _known_as(parts)
    is_name = all(part.isidentifier() or part == "<locals>" for part in parts)
    if not is_name or (known is not MISSING and not _is_exception(known)):
        return False, f"not an exception class: {wanted or repr(wanted)}"
    if known is not MISSING:
        return True, None
    loaded = list(_loaded())
    if any(_is_called(kind, wanted) for kind in loaded):
        return True, None
    alike = parts[-1].lower()
    near = sorted({_full_name(kind) for kind in loaded if alike in _of_class(kind, "__name__").lower()}, key=len)
    hint = f"; near: {', '.join(near[:3])}" if near else ""
    return True, f"no exception class named {wanted} is loaded: set for when one is{hint}"


def is_a(exception: object, wanted: str) -> bool:
    """Tell whether an exception's class, or one that it derives from, is called so by itself or in the program."""
    kind = exception if isinstance(exception, type) else type(exception)
    bases = _mro_of(kind)
    if any(_is_called(base, wanted) for base in bases):
        return True
    known = _known_as(wanted.split("."))
    return any(base is known for base in bases)


def _is_called(kind: type, wanted: str) -> bool:
    return wanted == _of_class(kind, "__name__") or f".{_full_name(kind)}".endswith(f".{wanted}")


def _full_name(kind: type) -> str:
    return f"{_of_class(kind, '__module__')}.{_of_class(kind, '__qualname__')}"


def _known_as(parts: list[str]) -> object:
    """Give what a module that is loaded has under a name; without a module's name, what all have. Calls nothing."""
    for end in range(len(parts) - 1, -1, -1):
        value: object = sys.modules.get(".".join(parts[:end]) or "builtins", MISSING)
        for part in parts[end:]:
            value = _stored_in(value, part)
        if value is not MISSING:
            return value
    return MISSING


def _stored_in(holder: object, name: str) -> object:
    if isinstance(holder, type(sys)):
        return object.__getattribute__(holder, "__dict__").get(name, MISSING)
    if isinstance(holder, type):
        found = (_names_of(base) for base in _mro_of(holder))
        return next((names[name] for names in found if name in names), MISSING)
    return MISSING


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and BaseException in _mro_of(value)


def _loaded() -> Iterator[type]:
    """Give every class of exceptions that there is."""
    seen: set[int] = set()
    left: list[type] = [BaseException]
    while left:
        kind = left.pop()
        yield kind
        below: list[type] = type.__subclasses__(kind)
        derived = [each for each in below if id(each) not in seen]
        seen.update(map(id, derived))
        left += derived


def _of_class(kind: type, name: str) -> str:
    """Read an attribute that every class has, without asking its metaclass."""
    value = type.__dict__[name].__get__(kind)
    return value if type(value) is str else "?"


def named(exception: BaseException) -> str:
    """Tell the class of an exception, with its module. Runs nothing of the program."""
    module, name = (_of_class(type(exception), it) for it in ("__module__", "__qualname__"))
    return name if module == "builtins" else f"{module}.{name}"


def described(exception: BaseException) -> tuple[str, str]:
    """Tell the class of an exception, and what it says, which the program may compute."""
    name = named(exception)
    try:
        message = str(exception)
    except Exception as error:  # noqa: BLE001 - it is the program's
        message = f"<its message raised {_of_class(type(error), '__name__')}>"
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
    traceback: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(exception)
    while traceback is not None:
        found.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return found[::-1]
