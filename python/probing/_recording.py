"""Spans and declared tables: what a program records with more than one call.

``record`` and ``event`` themselves are native (``_probe``).
"""

import dataclasses
import re
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar, overload

from probing import _probe

__all__ = ["span", "table"]

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

# The span that the code of this thread, or task, is in.
_current: ContextVar[int | None] = ContextVar("probing.span", default=None)

# Flags of code objects, as `inspect` knows them; importing it would cost the program some milliseconds.
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200

_KINDS = ("bool", "int", "float", "str")
_OPTIONAL = re.compile(r"(?:typing\.|t\.)?Optional\[(.*)\]$")


class span:
    """A stretch of the program's time: ``with span("load", batch=3): ...``, or a decorator.

    Recorded in ``python.trace_event`` when it is entered and when it is left, with the span around it, what it was left
    by, and the attributes. Around an ``async`` function or a generator it lasts as long as that does.
    """

    __slots__ = ("_attributes", "_entered", "_name", "_outer")

    def __init__(self, name: str, /, **attributes: object) -> None:
        self._name = name
        self._attributes = attributes
        self._entered: tuple[int, int] | None = None
        self._outer: int | None = None

    def note(self, **attributes: object) -> None:
        """Add attributes, which are recorded when the span is left."""
        self._attributes.update(attributes)

    def __enter__(self) -> "span":
        if self._entered is not None:
            raise RuntimeError(f"the span {self._name!r} has been entered already: make one for each `with`")
        self._outer = _current.get()
        self._entered = _probe.span_begin(self._name, self._outer, self._attributes)
        _current.set(self._entered[0])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered, self._entered = self._entered, None
        # Not a token: a generator may be closed in another context than it was begun in.
        _current.set(self._outer)
        if entered is not None:
            left_by = None if kind is None else kind.__name__
            _probe.span_end(entered, self._name, self._outer, left_by, self._attributes)

    def __call__(self, function: Function) -> Function:
        """Make a span of every call of a function."""
        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        if flags & _COROUTINE:
            around = self._around_coroutine(function)
        elif flags & _ASYNC_GENERATOR:
            around = self._around_async_generator(function)
        elif flags & _GENERATOR:
            around = self._around_generator(function)
        else:
            around = self._around_call(function)
        return wraps(function)(around)  # type: ignore[return-value]

    def _another(self) -> "span":
        return span(self._name, **self._attributes)

    def _around_call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: object, **kwargs: object) -> object:
            with self._another():
                return function(*args, **kwargs)

        return call

    def _around_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: object, **kwargs: object) -> object:
            with self._another():
                return await function(*args, **kwargs)

        return call

    def _around_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: object, **kwargs: object) -> Generator[Any, Any, Any]:
            with self._another():
                return (yield from function(*args, **kwargs))

        return call

    def _around_async_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: object, **kwargs: object) -> AsyncGenerator[Any, Any]:
            with self._another():
                generator = function(*args, **kwargs)
                try:
                    step = generator.asend(None)
                    while True:
                        try:
                            value = await step
                        except StopAsyncIteration:
                            return
                        try:
                            step = generator.asend((yield value))
                        except GeneratorExit:
                            raise
                        except BaseException as error:  # noqa: BLE001 - what is thrown in goes to the function
                            step = generator.athrow(error)
                finally:
                    await generator.aclose()

        return call


@overload
def table(class_or_name: Class, /) -> Class: ...


@overload
def table(class_or_name: str, /) -> Callable[[Class], Class]: ...


def table(class_or_name: Class | str, /) -> Class | Callable[[Class], Class]:
    """Declare a table by a dataclass: each instance has a method ``record()``, which appends it as a row.

    >>> @table
    ... class Step:
    ...     step: int
    ...     loss: float
    >>> Step(3, 0.5).record()

    The table is ``user.step``; ``@table("metrics.step")`` names another. It is there from now on, without rows.
    """
    if isinstance(class_or_name, str):
        name = class_or_name
        return lambda cls: _declared(cls, name)
    return _declared(class_or_name, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_or_name.__name__).lower())


def _declared(cls: Class, name: str) -> Class:
    if not dataclasses.is_dataclass(cls):
        cls = dataclasses.dataclass(cls)  # type: ignore[assignment]
    fields = dataclasses.fields(cls)
    kinds = [(field.name, _kind(field.type)) for field in fields]
    # What is no plain value is of the kind that its first value is.
    _probe.declare(name, [(field, kind) for field, kind in kinds if kind is not None])
    names = [field.name for field in fields]

    def record(self: object) -> None:
        """Append this as a row of its table."""
        _probe.record(name, **{field: getattr(self, field) for field in names})

    cls.record = record  # type: ignore[attr-defined]
    return cls


def _kind(annotation: object) -> str | None:
    """``int``, ``float | None`` and the like, spelled out or not."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    optional = _OPTIONAL.match(text)
    parts = {part.strip() for part in (optional[1] if optional else text).split("|")} - {"None"}
    return parts.pop() if len(parts) == 1 and parts <= set(_KINDS) else None
