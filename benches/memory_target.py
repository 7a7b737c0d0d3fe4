"""How much slower loops that allocate are with the heap sampled, and with tracemalloc: in one process, as JSON."""

import json
import time
import tracemalloc
from collections.abc import Callable

from probing import _probe

ROUNDS = 9
DATA = [{"id": number, "name": f"row {number}", "values": list(range(10))} for number in range(200)]


class Node:
    def __init__(self, value: int, rest: "Node | None") -> None:
        self.value = value
        self.rest = rest


def text() -> None:
    """Parsing and formatting: much of what services do."""
    for _ in range(15):
        json.loads(json.dumps(DATA))


def objects() -> None:
    """Small objects that come and go: nothing but allocations."""
    for _ in range(20):
        node: Node | None = None
        for value in range(1000):
            node = Node(value, node)


def buffers() -> None:
    """Large blocks."""
    for _ in range(3000):
        bytearray(20_000)


LOOPS: dict[str, Callable[[], None]] = {"json": text, "objects": objects, "buffers": buffers}


def timed(loop: Callable[[], None]) -> float:
    begun = time.thread_time()
    loop()
    return time.thread_time() - begun


def ours(loop: Callable[[], None]) -> float:
    _probe.trace_begin("memory_usage")
    try:
        return timed(loop)
    finally:
        _probe.trace_end("memory_usage")


def theirs(loop: Callable[[], None]) -> float:
    tracemalloc.start()
    try:
        return timed(loop)
    finally:
        tracemalloc.stop()


def main() -> None:
    ways = {"plain": timed, "ours": ours, "tracemalloc": theirs}
    least = {name: dict.fromkeys(ways, float("inf")) for name in LOOPS}
    for _ in range(ROUNDS):
        for name, loop in LOOPS.items():
            for way, take in ways.items():
                least[name][way] = min(least[name][way], take(loop))
    print(json.dumps(least))


if __name__ == "__main__":
    main()
