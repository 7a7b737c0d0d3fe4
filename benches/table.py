"""One row per figure, aligned, readable in a terminal of 110 columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """What the figure may be."""

    words: str
    most: float


@dataclass(frozen=True)
class Row:
    figure: str
    unit: str
    # A peer without a number has words, or nothing.
    values: Mapping[str, float | str]
    how: str
    budget: Budget | None = None
    # One that does not compare explains others: no ratio, and no word about who has no number.
    compares: bool = True


def render(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The table as text, with a column for each peer: ours first."""
    headings = ("figure", *names, "ratio", "budget", "how measured")
    lines = [headings, *(_cells(row, names) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    texts = ["  ".join(_aligned(line, widths)).rstrip() for line in lines]
    return "\n".join([texts[0], "─" * max(map(len, texts)), *texts[1:]])


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        # Figures stand at the right: all but the first column and the last two.
        text.rjust(width) if 0 < column < len(line) - 2 else text.ljust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]


def _cells(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    missing = "no answer" if row.compares else "-"
    values = [row.values.get(name, missing) for name in names]
    ours, *others = values
    texts = [_text(value, row.unit) for value in values]
    ratio = _ratio(ours, others) if row.compares else ""
    return (row.figure, *texts, ratio, _verdict(ours, row.budget), row.how)


def _text(value: float | str, unit: str) -> str:
    return value if isinstance(value, str) else f"{_number(value)} {unit}".rstrip()


def _number(value: float) -> str:
    if value == int(value):
        return str(int(value))
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"


def _ratio(ours: float | str, others: Sequence[float | str]) -> str:
    """How much more the best of the others has."""
    numbers = [other for other in others if not isinstance(other, str)]
    # Nothing, or what noise made of nothing, has no ratio.
    if isinstance(ours, str) or not numbers or ours <= 0 or min(numbers) <= 0:
        return "-"
    ratio = min(numbers) / ours
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def _verdict(ours: float | str, budget: Budget | None) -> str:
    if budget is None or isinstance(ours, str):
        return ""
    return f"{budget.words} {'✓' if ours <= budget.most else '✗'}"
