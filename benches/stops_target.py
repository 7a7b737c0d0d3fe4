"""A hot loop, and how each debugger gets a breakpoint into it. Does what each line of its input says, answers in JSON.

Times are CPU times of this thread, the least of several runs.
"""

import contextlib
import io
import json
import pdb
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

Trace = Callable[[FrameType, str, Any], Any]

PASSES = 50_000
# A log point records so many lines in a second at most; a run stays below.
LOGGED = 500
NAMES = (
    "elsewhere",
    "cold",
    "native",
    "general",
    "raise",
    "raising",
    "log",
    "write",
    "item",
    "after",
    "line",
    "function",
)
NATIVE, GENERAL, CALLED = "total == -5", "total % 1000003 == -1", "price < 0"


def hot(count: int, is_rare: bool) -> int:
    total = 0
    last = -1
    for row in range(count):
        price = row * 3 + 1
        tax = price % 7
        total += price - tax  # @hot
        if tax > last and price < 0:
            last = tax
        if is_rare:
            total = -1  # @cold
    return total


def elsewhere() -> int:
    return 1  # @elsewhere


def called(price: int) -> int:
    return price + 1  # @called


def calling(count: int) -> int:
    total = 0
    for row in range(count):
        total += called(row)
    return total


def raising(count: int) -> int:
    found = 0
    for row in range(count):
        try:
            found += NUMBERS[row]
        except KeyError:
            found -= 1
    return found


def writing(count: int) -> None:
    for row in range(count):
        CONFIG["rate"] = row


NUMBERS: dict[int, int] = {}
CONFIG = {"rate": -1}
LINES: list[str] = []


def work(case: str) -> Callable[[], int]:
    """What is timed."""
    if case == "raising":
        return lambda: raising(PASSES // 10)
    if case == "item":
        return lambda: writing(PASSES) or 0
    if case in ("line", "function"):
        return lambda: calling(PASSES)
    return lambda: hot(LOGGED if case == "log" else PASSES, is_rare=False)


def line(mark: str) -> int:
    with open(__file__, encoding="utf-8") as source:
        return next(number for number, text in enumerate(source, 1) if text.endswith(f"# @{mark}\n"))


def place(case: str) -> tuple[int, str | None]:
    """The line of the breakpoint, and its condition."""
    condition = {"native": NATIVE, "general": GENERAL, "line": CALLED, "function": CALLED}.get(case)
    mark = {"elsewhere": "elsewhere", "cold": "cold", "line": "called", "function": "called"}.get(case, "hot")
    return line(mark), condition


def least(case: str) -> float:
    """The nanoseconds of one pass."""
    timed = work(case)
    times = []
    begun = time.monotonic()
    while len(times) < 9 and (not times or time.monotonic() - begun < 0.25):
        started = time.thread_time_ns()
        timed()
        times.append(time.thread_time_ns() - started)
        if case == "log":
            # The next second has room again; and another first run is enough.
            break
    return min(times) / (LOGGED if case == "log" else PASSES // 10 if case == "raising" else PASSES)


@contextlib.contextmanager
def dowhen(case: str) -> Iterator[None]:
    from dowhen import when

    at, condition = place(case)
    what = "LINES.append(f'{row} {total}')" if case == "log" else "pass"
    handler = when(elsewhere if case == "elsewhere" else hot, at, condition=condition).do(what)
    try:
        yield
    finally:
        handler.remove()
        LINES.clear()


def with_pdb(case: str) -> float:
    at, condition = place(case)
    best: dict[str, Any] = {"backend": "monitoring"} if sys.version_info >= (3, 14) else {}
    debugger = pdb.Pdb(stdin=io.StringIO("continue\n"), stdout=io.StringIO(), nosigint=True, readrc=False, **best)
    debugger.set_break(__file__, at, cond=condition)
    try:
        return float(debugger.runcall(least, case))
    finally:
        debugger.clear_all_breaks()
        sys.settrace(None)


@contextlib.contextmanager
def settrace(case: str) -> Iterator[None]:
    """How a watch is written without a tool: each line of the function compares."""
    last: object = None

    def compare(frame: FrameType, _event: str, _argument: object) -> Trace:
        nonlocal last
        value = frame.f_locals.get("total") if case == "write" else CONFIG["rate"]
        if value != last:
            last = value
        return compare

    def begin(frame: FrameType, _event: str, _argument: object) -> Trace | None:
        return compare if frame.f_code in (hot.__code__, writing.__code__) else None

    sys.settrace(begin)
    try:
        yield
    finally:
        sys.settrace(None)


def listen(port: int) -> None:
    import debugpy

    debugpy.listen(("127.0.0.1", port))
    debugpy.wait_for_client()


def timed(tool: str, case: str) -> float:
    if tool == "pdb":
        return with_pdb(case)
    # Others are armed from outside.
    ways = {"dowhen": dowhen, "settrace": settrace}
    with ways[tool](case) if tool in ways else contextlib.nullcontext():
        if case == "log":
            time.sleep(1.1)
        return least(case)


def main() -> None:
    print("ready", flush=True)
    for request in map(json.loads, sys.stdin):
        if request["do"] == "listen":
            listen(request["port"])
            answer: object = True
        elif request["do"] == "lines":
            answer = {case: place(case) for case in NAMES}
        else:
            answer = timed(request["tool"], request["case"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
