"""Every figure of reading stacks: how long an answer takes, and how long the target is kept from its work by it."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from load import LOAD, load
from peers import ENVIRON
from samples import Sample, in_turn
from stacks_tools import EXTRAS, RATE, StackTool
from table import Budget, Row
from unprepared import Unprepared, unprepared

THREADS = (1, 10, 100)
DEPTHS = (20, 200)
ROUNDS = 5
LOADED_ROUNDS = 15
SAMPLED_SECONDS = 3
SAMPLED_ROUNDS = 2
NOTHING_SECONDS = 0.03
Result = TypeVar("Result")
# Of 100 threads with 200 frames each: milliseconds for the answer, and of pause.
BUDGETS: dict[str, tuple[float | None, float | None]] = {"": (30, 0.2), "--locals": (300, 5), "--native": (50, None)}


@dataclass(frozen=True)
class StacksBench:
    bare_python: Path
    tools: Sequence[StackTool]

    def target(self, threads: int, depth: int) -> contextlib.AbstractContextManager[Unprepared]:
        return unprepared(self.bare_python, ENVIRON, threads, "watches", depth)


def shown(bench: StacksBench, extra: str) -> list[Row]:
    return [row for threads in THREADS for depth in DEPTHS for row in _shown(bench, extra, threads, depth)]


def _shown(bench: StacksBench, extra: str, threads: int, depth: int) -> list[Row]:
    with bench.target(threads, depth) as target:

        def sample(tool: StackTool) -> Sample:
            spent, gap = _disturbed(target, lambda: tool.shown(target.pid, extra))
            return {"wall": spent.wall_seconds * 1e3, "gap": gap}

        samples = in_turn([tool for tool in bench.tools if tool.can(extra)], ROUNDS, sample)
    cannot = {tool.name: "cannot" for tool in bench.tools if not tool.can(extra)}
    words = f"{extra.removeprefix('--') or 'stacks'} {threads} × {depth}"
    wall, pause = BUDGETS[extra] if (threads, depth) == (THREADS[-1], DEPTHS[-1]) else (None, None)
    how = f"to its end, median of {ROUNDS}"
    return [
        Row(words, "ms", cannot | samples.cells("wall"), how, _at_most(wall)),
        Row("… pause", "ms", cannot | samples.best_cells("gap"), f"inside it, least of {ROUNDS}", _at_most(pause)),
    ]


def undisturbed(bench: StacksBench) -> list[Row]:
    """What the scheduler alone does to the target: a pause like this is none."""
    rows = []
    for threads in THREADS:
        with bench.target(threads, DEPTHS[0]) as target:
            gaps = [_disturbed(target, lambda: time.sleep(NOTHING_SECONDS))[1] for _ in range(ROUNDS)]
        how = f"in {NOTHING_SECONDS * 1e3:.0f} ms, least of {ROUNDS}"
        rows.append(Row(f"pause, no tool, {threads} threads", "ms", {"ours": min(gaps)}, how, compares=False))
    return rows


def under_load(bench: StacksBench) -> list[Row]:
    """Pauses while eight others want the CPU; the last row is the scheduler alone."""
    rows, nothing = [], []
    with load(), bench.target(1, DEPTHS[0]) as target:
        for extra in ("", "--native"):

            def sample(tool: StackTool, extra: str = extra) -> Sample:
                spent, gap = _disturbed(target, lambda: tool.shown(target.pid, extra))
                nothing.append(_disturbed(target, lambda: time.sleep(spent.wall_seconds))[1])
                return {"gap": gap}

            samples = in_turn([tool for tool in bench.tools if tool.can(extra)], LOADED_ROUNDS, sample)
            cannot = {tool.name: "cannot" for tool in bench.tools if not tool.can(extra)}
            words = f"load {LOAD}: pause by {extra.removeprefix('--') or 'stacks'}"
            how = f"inside it, median of {LOADED_ROUNDS}"
            rows.append(Row(words, "ms", cannot | samples.cells("gap"), how))
            rows.append(Row("… longest", "ms", cannot | samples.worst_cells("gap"), f"most of {LOADED_ROUNDS}"))
    how = f"as long, with no tool, median of {len(nothing)}"
    most = f"most of {len(nothing)}"
    return [
        *rows,
        Row(f"load {LOAD}: no tool", "ms", {"ours": median(nothing)}, how, compares=False),
        Row("… longest", "ms", {"ours": max(nothing)}, most, compares=False),
    ]


def sampled(bench: StacksBench) -> list[Row]:
    return [row for threads in THREADS for row in _sampled(bench, threads)]


def _sampled(bench: StacksBench, threads: int) -> list[Row]:
    with bench.target(threads, DEPTHS[0]) as target:

        def sample(tool: StackTool) -> Sample:
            spent, gap = _disturbed(target, lambda: tool.sampled(target.pid, SAMPLED_SECONDS))
            return {"share": spent.cpu_seconds / SAMPLED_SECONDS * 100, "gap": gap}

        samples = in_turn([tool for tool in bench.tools if tool.sample], SAMPLED_ROUNDS, sample)
    cannot = {tool.name: "cannot" for tool in bench.tools if not tool.sample}
    how = f"of a core, {SAMPLED_SECONDS} s at {RATE} Hz"
    return [
        Row(f"sampling {threads} × {DEPTHS[0]}", "%", cannot | samples.cells("share"), how),
        Row("… pause", "ms", cannot | samples.best_cells("gap"), f"inside it, least of {SAMPLED_ROUNDS}"),
    ]


def _disturbed(target: Unprepared, meanwhile: Callable[[], Result]) -> tuple[Result, float]:
    """Does something to a target that looks at the clock; the longest time, in ms, that it was kept from it."""
    target.must_go_on()
    target.forget()
    result = meanwhile()
    target.must_go_on()
    return result, target.found / 1e6


def _at_most(millis: float | None) -> Budget | None:
    return None if millis is None else Budget(f"≤ {millis} ms", millis)


STACKS_FIGURES: Sequence[tuple[str, Callable[[StacksBench], list[Row]]]] = (
    *((f"stacks {extra}".rstrip(), partial(shown, extra=extra)) for extra in EXTRAS),
    ("pauses without a tool", undisturbed),
    (f"pauses at load {LOAD}", under_load),
    (f"sampling at {RATE} Hz", sampled),
)
