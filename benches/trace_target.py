"""A program that calls, and how each tracer follows it. Does what its arguments say, prints nanoseconds.

Times are CPU times of this thread, the least of several runs.
"""

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

CALLS = 100_000
ROUNDS = 7


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


def least(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.thread_time_ns()
        work()
        best = min(best, time.thread_time_ns() - began)
    return best


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


FIB = 21
# Calls that it takes: two times the number that it gives for 22, less one.
FIB_CALLS = 35_421


def function(tool: str) -> float:
    """Nanoseconds of an event when one function is traced: its calls and returns."""
    plain = least(lambda: calling(CALLS))
    if tool == "ours":
        import probing

        probing.probe(budget=None)(leaf)
    return (least(lambda: calling(CALLS)) - plain) / (2 * CALLS)


def program(tool: str) -> float:
    """Nanoseconds of an event when all that a program calls is traced."""
    plain = least(lambda: fib(FIB))
    if tool == "ours":
        import probing

        for each in (leaf, cold, calling, fib, writing):
            probing.probe(budget=None)(each)
        traced = least(lambda: fib(FIB))
    else:
        from viztracer import VizTracer

        tracer = VizTracer(tracer_entries=2 * FIB_CALLS, verbose=0, ignore_c_function=True)

        def once() -> None:
            tracer.start()
            fib(FIB)
            tracer.stop()
            tracer.clear()

        traced = least(once)
    return (traced - plain) / (2 * FIB_CALLS)


def elsewhere(tool: str) -> float:
    """How many times as long a loop takes while a function that it does not call is traced."""
    plain = least(lambda: calling(CALLS))
    if tool == "ours":
        import probing

        probing.probe(budget=None)(cold)
    return least(lambda: calling(CALLS)) / plain


def watch(tool: str) -> float:
    """Nanoseconds that a write of a watched variable costs."""
    count = CALLS // 20
    plain = least(lambda: writing(count))
    if tool == "ours":
        import probing

        probing.probe(watch=["rate"], stats=True, budget=None)(writing)
    else:
        watched_by_settrace("rate")
    armed = least(lambda: writing(count))
    sys.settrace(None)
    return (armed - plain) / count


def hostile(tool: str) -> float:
    """How many times as long a loop that does nothing but call takes, a second after it is traced within the budget."""
    plain = least(lambda: calling(CALLS))
    if tool == "ours":
        import probing

        probing.start()
        probing.probe(leaf)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            calling(CALLS)
    # Muted and told of by turns: what counts is all of it, not the best.
    began, count = time.thread_time_ns(), 200
    for _ in range(count):
        calling(CALLS)
    return (time.thread_time_ns() - began) / count / plain


if __name__ == "__main__":
    case, tool = sys.argv[1:]
    print(globals()[case](tool))
