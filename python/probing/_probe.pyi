"""Native half of the package."""

from collections.abc import Callable, Sequence
from typing import Literal

__version__: str

def start(start_ticks: int | None = None) -> bool: ...
def stop() -> bool: ...
def breakpoint() -> bool: ...
def record(table: str, /, **values: object) -> None:
    """Append a row to a table: ``record("train", step=3, loss=0.5)``.

    The first row says which columns there are and what they hold; later rows may have more, or lack some. Values are
    numbers, texts, bools and None; something else is recorded as the number that it can be, else as its text.
    """

def event(name: str, /, **attributes: object) -> None:
    """Record that something happened: a row of ``python.trace_event``."""

def step(number: int | None = None, /) -> int:
    """Say which step of the training begins: this one, or the next; the first is 0. Returns it.

    What is recorded from now on has it in its column ``step``. For loops without an optimizer of torch, whose steps are
    counted when torch is traced: a program that counts itself is believed.
    """

def trace_begin(kind: str) -> None:
    """Trace in a built-in way, like ``"memory_usage"``, until the same number of calls of ``trace_end``."""

def trace_end(kind: str) -> None: ...
def declare(table: str, columns: list[tuple[str, str]]) -> None: ...
def span_begin(name: str, parent: int | None, attributes: dict[str, object]) -> tuple[int, int]: ...
def span_end(
    span: tuple[int, int], name: str, parent: int | None, error: str | None, attributes: dict[str, object]
) -> None: ...
def trace_function(
    function: Callable[..., object],
    depth: int,
    watch: list[str],
    rows: Literal["calls", "lines", "none"],
    budget_ppm: int | None,
) -> int: ...
def block_enter(name: str, depth: int, watch: Sequence[str], budget_ppm: int | None) -> tuple[int, list[int]]: ...
def block_exit(block: tuple[int, list[int]]) -> None: ...
def storage() -> str | None:
    """Where recorded rows go: None before the first, ``"shared"``, or ``"heap: ..."`` and why."""

def torch(asked: str) -> str: ...
def tensor_statistics(
    tensor: object,
) -> tuple[tuple[int, int, int, int], tuple[float, float, float, float | None, float] | None] | None:
    """Counts (all, NaN, infinite, zero), and of the finite: least, greatest, mean, deviation, norm."""

def arm(wanted: str) -> str: ...
def disarm(point: int) -> None: ...
def tensor_in_words(tensor: object) -> str: ...
def tensor_changed(name: str, operation: str, old: str | None, new: str, at: tuple[str, str, int]) -> None: ...
