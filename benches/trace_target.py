"""A program that calls, and how each tracer follows it. Does what its arguments say, prints nanoseconds.

Times are CPU times of this thread, the least of several runs.
"""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import trace_program

CALLS = 100_000
ROUNDS = 15
# Rounds before, which are not counted: a ring grows to 16 MB, and its first pass over that costs more. How much is a
# figure of its own.
FIRST_ROUNDS = 12


def leaf(x: int) -> int:
    return x


def cold(x: int) -> int:
    return x


def calling(count: int) -> None:
    for i in range(count):
        leaf(i)


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def writing(count: int) -> int:
    total = 0
    for row in range(count):
        price = row * 3 + 1
        tax = price % 7
        rate = price - tax
        total += rate
    return total


def least(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    best = float("inf")
    for _ in range(rounds):
        began = time.thread_time_ns()
        work()
        best = min(best, time.thread_time_ns() - began)
    return best


def mean(work: Callable[[], object], rounds: int) -> float:
    began = time.thread_time_ns()
    for _ in range(rounds):
        work()
    return (time.thread_time_ns() - began) / rounds


def watched_by_settrace(name: str) -> None:
    """Set the trace function that everybody writes first."""
    last: dict[str, Any] = {}

    def trace(frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - as `sys.settrace` takes it
        if frame.f_code.co_name != "writing":
            return None
        if event == "line":
            value = frame.f_locals.get(name)
            if last.get(name) != value:
                last[name] = value
        return trace

    sys.settrace(trace)


def timed_by_settrace() -> None:
    """Set one that keeps when each line began, as many as a ring does."""
    seen: deque[tuple[int, int]] = deque(maxlen=500_000)

    def trace(frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - as `sys.settrace` takes it
        if frame.f_code.co_name != "writing":
            return None
        if event == "line":
            seen.append((time.perf_counter_ns(), frame.f_lineno))
        return trace

    sys.settrace(trace)


# Runs of the program at a time.
TIMES = 50

FIB = 21
# Calls that it takes: two times the number that it gives for 22, less one.
FIB_CALLS = 35_421


def function(tool: str) -> float:
    """Nanoseconds of a call when one function is traced."""
    plain = least(lambda: calling(CALLS))
    if tool == "ours":
        import probing

        probing.probe(budget=None)(leaf)
    least(lambda: calling(CALLS), FIRST_ROUNDS)
    return (least(lambda: calling(CALLS)) - plain) / CALLS


def program(tool: str) -> float:
    """Nanoseconds of a call when all that a program calls is traced."""
    plain, once = followed(tool)
    least(once, FIRST_ROUNDS)
    return (least(once) - plain) / FIB_CALLS


def fresh(tool: str) -> float:
    """The same while each row is written to memory that the program did not have before."""
    plain, once = followed(tool)
    return (mean(once, FIRST_ROUNDS // 2) - plain) / FIB_CALLS


def followed(tool: str) -> tuple[float, Callable[[], object]]:
    """What a run takes that nobody follows; a run that is followed."""

    def run() -> None:
        fib(FIB)

    plain = least(run)
    if tool == "ours":
        import probing

        for each in (leaf, cold, calling, fib, writing):
            probing.probe(budget=None)(each)
        return plain, run
    return plain, _followed_by_viztracer(run, without_c(2 * FIB_CALLS))


def without_c(entries: int) -> Any:  # noqa: ANN401 - a `VizTracer`, which has no types
    """Give a viztracer that follows what ours does: functions of Python."""
    from viztracer import VizTracer

    return VizTracer(tracer_entries=entries, verbose=0, ignore_c_function=True)


def as_started() -> Any:  # noqa: ANN401 - a `VizTracer`, which has no types
    """Give a viztracer as it is when nobody asks for anything else."""
    from viztracer import VizTracer

    return VizTracer(verbose=0)


def _followed_by_viztracer(run: Callable[[], object], tracer: Any) -> Callable[[], object]:  # noqa: ANN401
    def once() -> None:
        tracer.start()
        run()
        tracer.stop()
        tracer.clear()

    return once


def whole_program() -> None:
    trace_program.main(TIMES)


def whole(tool: str) -> float:
    """Nanoseconds of a call, of a program as programs are, all of which is followed."""
    calls = _calls_of(whole_program)
    plain = least(whole_program)
    if tool == "ours":
        import probing

        probing.start()
        _probing("trace", "--module", trace_program.__name__, "--budget", "none")
        once: Callable[[], object] = whole_program
    else:
        once = _followed_by_viztracer(whole_program, without_c(2 * calls))
    least(once, FIRST_ROUNDS)
    return (least(once) - plain) / calls


def whole_as_started(_tool: str) -> float:
    """Nanoseconds of a record of viztracer's, of the same program, when it is started as everybody does."""
    plain = least(whole_program)
    tracer = as_started()
    once = _followed_by_viztracer(whole_program, tracer)
    least(once, FIRST_ROUNDS)
    took = least(once)
    tracer.start()
    whole_program()
    tracer.stop()
    tracer.parse()
    # What has a duration is a call; beside them there are names of processes and threads.
    records = sum(event["ph"] == "X" for event in tracer.data["traceEvents"])
    return (took - plain) / records


def _calls_of(run: Callable[[], object]) -> int:
    """How often functions of the program begin or go on."""
    seen = 0

    def see(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal seen
        seen += event == "call" and frame.f_code.co_filename == trace_program.__file__

    sys.setprofile(see)
    run()
    sys.setprofile(None)
    return seen


def _probing(*arguments: str) -> None:
    command = [Path(sys.executable).parent / "probing", "-t", str(os.getpid()), *arguments]
    subprocess.run(command, check=True, capture_output=True)


def told_only(_tool: str) -> float:
    """Nanoseconds that the interpreter takes to tell twice of a call, whatever is done then."""
    import operator

    plain = least(lambda: fib(FIB))
    monitoring = sys.monitoring  # type: ignore[attr-defined]
    monitoring.use_tool_id(4, "bench")
    # It takes what is told when a function begins, and is done.
    monitoring.register_callback(4, monitoring.events.PY_START, operator.is_)
    monitoring.set_local_events(4, fib.__code__, monitoring.events.PY_START)
    return 2 * (least(lambda: fib(FIB)) - plain) / FIB_CALLS


def elsewhere(tool: str) -> float:
    """How many times as long a loop takes while a function that it does not call is traced."""
    plain = least(lambda: calling(CALLS))
    if tool == "ours":
        import probing

        probing.probe(budget=None)(cold)
    return least(lambda: calling(CALLS)) / plain


def watch(tool: str) -> float:
    """Nanoseconds that a write of a watched variable costs."""
    count = CALLS // 5
    plain = least(lambda: writing(count))
    if tool == "ours":
        import probing

        probing.probe(watch=["rate"], stats=True, budget=None)(writing)
    else:
        watched_by_settrace("rate")
    armed = least(lambda: writing(count))
    sys.settrace(None)
    return (armed - plain) / count


def lines(tool: str) -> float:
    """Nanoseconds that a line costs whose time is recorded."""
    count = CALLS // 5
    plain = least(lambda: writing(count))
    if tool == "ours":
        import probing

        probing.probe(lines=True, budget=None)(writing)
    else:
        timed_by_settrace()
    least(lambda: writing(count), FIRST_ROUNDS)
    told = least(lambda: writing(count))
    sys.settrace(None)
    # The head of its loop and four more.
    return (told - plain) / (5 * count)


def hostile(tool: str) -> float:
    """How many times as long a loop that does nothing but call takes, a second after it is traced within the budget."""
    global leaf
    least(lambda: calling(CALLS))
    before = whole_turns()
    if tool == "ours":
        import probing

        probing.probe(leaf)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            calling(CALLS)
    during = whole_turns()
    # The same as another object, which is not traced: machines grow faster and slower.
    leaf = type(leaf)(cold.__code__.replace(co_name="leaf"), globals())
    return during / min(before, whole_turns())


def whole_turns() -> float:
    """The least of some stretches of half a second: in each it is muted and told of by turns, which all counts."""
    return min(mean(lambda: calling(CALLS), 150) for _ in range(5))


if __name__ == "__main__":
    case, tool = sys.argv[1:]
    print(globals()[case](tool))
