"""Every figure of tracing: what an event costs, beside other tracers, on each Python."""

import subprocess
from collections.abc import Callable, Sequence
from functools import partial

from clients import NoAnswer
from environments import ROOT, OnePython
from table import Budget, Row

PROGRAM = ROOT / "benches/trace_target.py"
ROUNDS = 3


def least(bench: OnePython, case: str, tool: str) -> float:
    """The least of several processes."""
    argv = [bench.python, "-B", PROGRAM, case, tool]
    printed = []
    for _ in range(ROUNDS):
        ran = subprocess.run(argv, env=dict(bench.environ), capture_output=True, text=True)
        if ran.returncode != 0:
            raise NoAnswer(f"{tool} cannot trace {case}: {ran.stderr.strip().splitlines()[-1:]}")
        printed.append(float(ran.stdout))
    return min(printed)


def events(bench: OnePython) -> list[Row]:
    ours = partial(least, bench, tool="ours")
    function, program, watch = ours(case="function"), ours(case="program"), ours(case="watch")
    viztracer, viztracer_whole, as_started = (
        least(bench, case, "viztracer") for case in ("program", "whole", "whole_as_started")
    )
    whole = ours(case="whole")
    settrace = least(bench, "watch", "settrace")
    nobody = {"viztracer": "-", "settrace": "-"}
    return [
        Row(
            "one function, a call",
            "ns",
            {"ours": function, **nobody},
            "CPU time, the loop taken off: two rows, call and return",
        ),
        Row(
            "one function, an event",
            "ns",
            {"ours": function / 2, **nobody},
            "half of it",
            Budget("≤ 50", 50),
        ),
        Row(
            "five functions, a call",
            "ns",
            {"ours": program, "viztracer": viztracer, "settrace": "-"},
            "fib(21), all of its program decorated; viztracer without C functions",
        ),
        *interpreters_part(bench),
        Row(
            "a whole program, a call",
            "ns",
            {"ours": whole, "viztracer": viztracer_whole, "settrace": "-"},
            "trace --module; a small language; viztracer without C functions",
        ),
        Row(
            "the same, a record",
            "ns",
            {"ours": whole, "viztracer": as_started, "settrace": "-"},
            "a call with its end, each tool as one starts it: viztracer follows C functions, too",
            Budget("≤ 0.65 × viztracer", as_started * 0.65),
        ),
        Row(
            "the same in fresh memory, a call",
            "ns",
            {"ours": ours(case="fresh"), "viztracer": least(bench, "fresh", "viztracer"), "settrace": "-"},
            "the mean of the first 13 MB of rows",
        ),
        Row(
            "a function that is not called",
            "x",
            {"ours": ours(case="elsewhere"), "viztracer": "-", "settrace": "-"},
            "how many times as long a loop takes",
            Budget("1.00", 1.03),
        ),
        Row(
            "a watched variable, a write",
            "ns",
            {"ours": watch, "viztracer": "-", "settrace": settrace},
            "settrace: a function in Python that compares at each line",
            Budget("≤ settrace / 25", settrace / 25),
        ),
        Row(
            "a line with its time",
            "ns",
            {"ours": ours(case="lines"), "viztracer": "-", "settrace": least(bench, "lines", "settrace")},
            "trace --lines; settrace: a function in Python that keeps the time of each",
        ),
        Row(
            "a hostile loop, budget 1 %",
            "x",
            {"ours": ours(case="hostile"), "viztracer": "-", "settrace": "-"},
            "a second after it began: with all its turns of telling",
            Budget("≤ 1.03", 1.03),
        ),
    ]


def interpreters_part(bench: OnePython) -> list[Row]:
    """What two events of a call take before anybody has done anything: no tool that is told can cost less."""
    if not bench.has_monitoring:
        return []
    told = least(bench, "told_only", "nobody")
    note = "the interpreter's part: two events, with a callback that does nothing"
    values = {"ours": told, "viztracer": told, "settrace": "-"}
    return [Row("of that, being told", "ns", values, note, compares=False)]


def trace_figures(bench: OnePython) -> Sequence[tuple[str, Callable[[], list[Row]]]]:
    return ((f"tracing on Python {bench.version}", partial(events, bench)),)
