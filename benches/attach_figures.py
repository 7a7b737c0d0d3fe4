"""Every figure of attaching, and how it is taken: each attach is the first one of a fresh target."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from attach_tools import Attached, Tool
from clients import NoAnswer
from load import LOAD, load
from samples import Sample, Samples, in_turn
from table import Budget, Row
from unprepared import Unprepared, unprepared

THREADS = (1, 10, 100)
ROUNDS = 11
# What a target is at when it is looked at for harm, with how many threads. Four of each.
AT_WORK = ((1, "calculates"), (100, "calculates"), (1, "allocates"), (100, "allocates"), (10, "waits")) * 4


@dataclass(frozen=True)
class AttachBench:
    bare_python: Path
    tools: Sequence[Tool]
    # In which folder a probe meets its command is the only thing that targets are told: what the killed ones leave
    # there goes with it.
    environ: Mapping[str, str]

    def target(self, threads: int, way: str) -> contextlib.AbstractContextManager[Unprepared]:
        return unprepared(self.bare_python, self.environ, threads, way)


def waiting_targets(bench: AttachBench) -> list[Row]:
    def samples_with(threads: int) -> Samples:
        def sample(tool: Tool) -> Sample:
            with bench.target(threads, "waits") as target:
                attached = tool.attach(target)
                target.must_go_on()
            return {"wall": attached.wall_seconds * 1e3} | _own_account(attached)

        return in_turn(bench.tools, ROUNDS, sample)

    samples = {threads: samples_with(threads) for threads in THREADS}
    how = f"to its end, median of {ROUNDS}"
    return [
        *_by_threads("attach", samples, "wall", how, Budget("≤ 10 ms", 10)),
        *_explaining("took, it says", samples, "took", "its own account"),
    ]


def first_answers(bench: AttachBench) -> list[Row]:
    def samples_with(threads: int, way: str) -> Samples:
        def sample(tool: Tool) -> Sample:
            with bench.target(threads, way) as target:
                seconds = tool.first_answer(target)
                target.must_go_on()
            return {"wall": seconds * 1e3}

        return in_turn(bench.tools, ROUNDS, sample)

    samples = {threads: samples_with(threads, "waits") for threads in THREADS}
    busy = samples_with(1, "watches")
    how, budget = f"to answer, median of {ROUNDS}", Budget("≤ 60 ms", 60)
    return [
        *_by_threads("eval 1", samples, "wall", how, budget),
        Row("eval 1, busy main", "ms", busy.cells("wall"), how, budget),
    ]


def pauses(bench: AttachBench) -> list[Row]:
    """Main is in a tight loop, so with one thread there is none that waits."""

    samples = {threads: _pauses_with(bench, threads, bench.tools) for threads in THREADS}
    inside = f"inside it, median of {ROUNDS}"
    return [
        *_by_threads("busy main", samples, "wall", "to its end, same runs"),
        *_by_threads("longest gap", samples, "longest", inside, Budget("≤ 1 ms", 1)),
        *_explaining("undisturbed", samples, "undisturbed", "as long, with no tool"),
        *_explaining("pause, it says", samples, "paused", "its own account"),
    ]


def pauses_under_load(bench: AttachBench) -> list[Row]:
    """Who loses the CPU while it holds a thread keeps that thread from its work."""
    with load():
        samples = _pauses_with(bench, 1, bench.tools)
    how, most = f"inside it, median of {ROUNDS}", f"most of {ROUNDS}"
    undisturbed, paused = samples.middle("undisturbed"), samples.middle("paused")
    return [
        Row(f"load {LOAD}: longest gap", "ms", samples.cells("longest"), how),
        Row("… longest", "ms", samples.worst_cells("longest"), most),
        Row(f"load {LOAD}: no tool", "ms", {**undisturbed}, how, compares=False),
        Row(f"load {LOAD}: pause, it says", "ms", {**paused}, "its own account, same runs", compares=False),
    ]


def _pauses_with(bench: AttachBench, threads: int, tools: Sequence[Tool]) -> Samples:
    def sample(tool: Tool) -> Sample:
        def longest_millis(meanwhile: Callable[[Unprepared], Attached | None]) -> tuple[float, Attached | None]:
            with bench.target(threads, "watches") as target:
                target.must_go_on()
                target.forget()
                attached = meanwhile(target)
                target.must_go_on()
                return target.found / 1e6, attached

        longest, attached = longest_millis(tool.attach)
        assert attached is not None
        undisturbed, _ = longest_millis(lambda _: time.sleep(attached.wall_seconds))
        wall = attached.wall_seconds * 1e3
        return {"wall": wall, "longest": longest, "undisturbed": undisturbed} | _own_account(attached)

    return in_turn(tools, ROUNDS, sample)


@dataclass
class Tally:
    """How often all was well, of one tool."""

    tried: int = 0
    attached: int = 0
    well: int = 0


def harm(bench: AttachBench) -> list[Row]:
    """Nothing is timed, so all tools at once: some take long to fail."""

    def tally(tool: Tool) -> Tally:
        tally = Tally()
        for threads, way in AT_WORK:
            tally.tried += 1
            with bench.target(threads, way) as target:
                try:
                    _count(tool, target, threads, tally)
                except NoAnswer as no_answer:
                    # Each further one would take its whole deadline.
                    if no_answer.outcome.startswith("hangs"):
                        break
        return tally

    with ThreadPoolExecutor(len(bench.tools)) as pool:
        tallies = dict(zip([tool.name for tool in bench.tools], pool.map(tally, bench.tools), strict=True))
    attached = {name: f"{tally.attached} of {tally.tried}" for name, tally in tallies.items()}
    well = {name: f"{tally.well} of {tally.tried}" for name, tally in tallies.items()}
    return [
        Row("attached", "", attached, "main at work, or waiting", compares=False),
        Row("target alive and right", "", well, "runs on, same sums", compares=False),
    ]


def _count(tool: Tool, target: Unprepared, threads: int, tally: Tally) -> None:
    target.must_go_on()
    try:
        tool.attach(target)
        tally.attached += 1
        left = _leaves(tool, target, threads)
    except NoAnswer as no_answer:
        # Not getting in does no harm.
        if no_answer.outcome != "fails":
            raise
        left = True
    # Twice: what it was at meanwhile is then told, too.
    target.must_go_on()
    target.must_go_on()
    tally.well += left and target.found == 0


def _leaves(tool: Tool, target: Unprepared, threads: int) -> bool:
    """Whether nothing of a tool that can detach stays: a thread may be on its way out."""
    if tool.detach is None:
        return True
    tool.detach(target)
    deadline = time.monotonic() + 1
    while target.threads() != threads and time.monotonic() < deadline:
        time.sleep(0.001)
    return target.threads() == threads


def _own_account(attached: Attached) -> Sample:
    took, paused = attached.took_seconds, attached.paused_seconds
    return ({"took": took * 1e3} if took is not None else {}) | ({"paused": paused * 1e3} if paused is not None else {})


def _by_threads(
    words: str, samples: dict[int, Samples], figure: str, how: str, budget: Budget | None = None
) -> list[Row]:
    def row(words: str, threads: int) -> Row:
        return Row(words, "ms", samples[threads].cells(figure), how, budget)

    first, *others = THREADS
    return [row(f"{words}, {first} thread", first), *(row(f"… {threads} threads", threads) for threads in others)]


def _explaining(words: str, samples: dict[int, Samples], figure: str, how: str) -> list[Row]:
    rows = _by_threads(words, samples, figure, how)
    return [
        replace(row, values=samples[threads].middle(figure), compares=False)
        for row, threads in zip(rows, THREADS, strict=True)
    ]


ATTACH_FIGURES: Sequence[tuple[str, Callable[[AttachBench], list[Row]]]] = (
    ("attach to targets that wait", waiting_targets),
    ("first answers", first_answers),
    ("pauses", pauses),
    (f"pauses at load {LOAD}", pauses_under_load),
    ("harm", harm),
)
