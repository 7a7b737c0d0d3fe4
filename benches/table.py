"""One row per figure, aligned, readable in a terminal of 110 columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HEADINGS = ("figure", "ours", "older", "ratio", "budget", "how measured")
# Columns of numbers stand at the right.
RIGHT = (1, 2, 3)


@dataclass(frozen=True)
class Budget:
    """What the issue that introduced the figure allows."""

    words: str
    most: float


@dataclass(frozen=True)
class Row:
    figure: str
    unit: str
    values: Mapping[str, float]
    how: str
    budget: Budget | None = None


def render(rows: Sequence[Row], *, has_older: bool) -> str:
    """The table as text."""
    lines = [HEADINGS, *(_cells(row, has_older=has_older) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    texts = ["  ".join(_aligned(line, widths)).rstrip() for line in lines]
    return "\n".join([texts[0], "─" * max(map(len, texts)), *texts[1:]])


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        text.rjust(width) if column in RIGHT else text.ljust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]


def _cells(row: Row, *, has_older: bool) -> tuple[str, ...]:
    ours, older = row.values["ours"], row.values.get("older")
    older_text = _text(older, row.unit) if older is not None else ("no answer" if has_older else "not installed")
    return (row.figure, _text(ours, row.unit), older_text, _ratio(ours, older), _verdict(ours, row.budget), row.how)


def _text(value: float, unit: str) -> str:
    return f"{_number(value)} {unit}".rstrip()


def _number(value: float) -> str:
    if value == int(value):
        return str(int(value))
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"


def _ratio(ours: float, older: float | None) -> str:
    # Nothing, or what noise made of nothing, has no ratio.
    if older is None or ours <= 0 or older <= 0:
        return "-"
    ratio = older / ours
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def _verdict(ours: float, budget: Budget | None) -> str:
    if budget is None:
        return ""
    return f"{budget.words} {'✓' if ours <= budget.most else '✗'}"
