"""``probing.probe`` and ``probing.trace``: what functions of this program do, recorded as they do it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Literal, TypeVar, overload

from probing import _probe
from probing._recording import span

__all__ = ["probe", "trace"]

Function = TypeVar("Function", bound=Callable[..., Any])

# Names of ``trace`` that mean more than a stretch of code: the native half knows what to do for them.
KINDS = ("memory_usage", "collective_ops")

# Of CPU time, in percent.
_BUDGET = 1.0
_PPM_PER_PERCENT = 10_000

# How deep wrappers may lie around a function.
_WRAPPERS = 10

# Of a block: how deep to follow, what to watch, what it may cost.
_Wanted = tuple[int, tuple[str, ...], int | None]
_NOTHING: _Wanted = (0, (), None)


@overload
def probe(function: Function, /) -> Function: ...


@overload
def probe(
    *,
    watch: Sequence[str] = (),
    depth: int = 0,
    stats: bool = False,
    lines: bool = False,
    budget: float | None = _BUDGET,
) -> Callable[[Function], Function]: ...


def probe(
    function: Function | None = None,
    /,
    *,
    watch: Sequence[str] = (),
    depth: int = 0,
    stats: bool = False,
    lines: bool = False,
    budget: float | None = _BUDGET,
) -> Function | Callable[[Function], Function]:
    """Trace a function or method: ``@probe`` or ``@probe(watch=["x"], depth=1)``.

    Calls, returns, durations and exceptions are rows of ``python.trace_event``, and of what it calls down to ``depth``;
    changes of the variables named in ``watch`` are rows of ``python.variables``. With ``lines`` each line that the
    function comes to is a row, too, with how long it took. With ``stats`` there are only sums, in
    ``python.trace_stats``. ``budget`` is the most that it may cost, in percent of CPU time (None: no limit): a function
    that is called too often is recorded a part of the time.

    Works for plain, ``async`` and generator functions, static and class methods; of one that a decorator wraps
    (``functools.wraps``, ``lru_cache``), what is inside is traced. The function stays the object it is.
    """

    _check_depth(depth)
    if stats and lines:
        raise ValueError("lines and stats exclude each other: choose one")
    rows: Literal["calls", "lines", "none"] = "none" if stats else "lines" if lines else "calls"

    def traced(function: Function) -> Function:
        inner = _innermost(function)
        if not hasattr(inner, "__code__"):
            raise TypeError(f"only Python functions can be traced, not one of type {type(inner).__qualname__}")
        _probe.trace_function(inner, depth, list(watch), rows, _ppm(budget))
        return function

    return traced if function is None else traced(function)


def trace(
    name: str,
    /,
    *,
    watch: Sequence[str] = (),
    depth: int = 0,
    budget: float | None = _BUDGET,
    **attributes: object,
) -> AbstractContextManager[Any]:
    """Trace a stretch of code: ``with trace("load", watch=["lr"], depth=1): ...``.

    It is a span of ``python.trace_event``, with ``attributes``. Functions that the code in it calls are traced down to
    ``depth``, on this thread. Changes of the variables named in ``watch``, those of the function around it, are rows of
    ``python.variables`` while the block lasts; so are those of a module, for code at its top, and of ``config.lr``.

    Two names mean more, for as long as the block lasts: ``"memory_usage"`` (rows of ``python.memory``) and
    ``"collective_ops"`` (rows of ``python.collectives``).
    """
    if name in KINDS:
        return _Kind(name, _NOTHING, attributes)
    _check_depth(depth)
    return _Block(name, (depth, tuple(watch), _ppm(budget)), attributes)


class _Block(span):
    """A span that follows what the code in it calls, and what becomes of its variables."""

    __slots__ = ("_begun", "_wanted")

    def __init__(self, name: str, wanted: _Wanted, attributes: dict[str, object]) -> None:
        super().__init__(name, **attributes)
        self._wanted = wanted
        self._begun: tuple[int, list[int]] | None = None

    def __enter__(self) -> "_Block":
        super().__enter__()
        depth, watch, budget = self._wanted
        if depth > 0 or watch:
            try:
                self._begun = _probe.block_enter(self._name, depth, watch, budget)
            except BaseException as error:
                super().__exit__(type(error), error, None)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            _probe.block_exit(begun)
        super().__exit__(kind, error, traceback)

    def _another(self) -> "_Block":
        return _Block(self._name, self._wanted, self._attributes)


class _Kind(_Block):
    """A span in which something is recorded besides."""

    __slots__ = ()

    def __enter__(self) -> "_Kind":
        _probe.trace_begin(self._name)
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        _probe.trace_end(self._name)

    def _another(self) -> "_Kind":
        return _Kind(self._name, _NOTHING, self._attributes)


def _innermost(function: Any) -> Any:  # noqa: ANN401
    # Code of a decorator's is that of all functions it wraps: their calls would be told as those of this one.
    for _ in range(_WRAPPERS):
        if isinstance(function, (staticmethod, classmethod)):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    return function


def _check_depth(depth: int) -> None:
    if depth < 0:
        raise ValueError(f"depth must be 0 or more: {depth}")


def _ppm(percent: float | None) -> int | None:
    return None if percent is None else round(percent * _PPM_PER_PERCENT)
