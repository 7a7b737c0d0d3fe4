"""A program that nobody prepared: `attach_target.py THREADS waits|watches|calculates|allocates FD DEPTH`.

All threads but the main one wait; all of them are DEPTH calls deep. Main tells through two numbers in the memory behind
FD: `beat`, which it moves on while it runs, and `found`, what it found.
"""

import math
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn


def wait(shared: "memoryview[int]") -> None:
    """Waits for lines, and moves on with each."""
    for _ in sys.stdin:
        shared[0] += 1


def watch(shared: "memoryview[int]") -> NoReturn:
    """Does nothing but look at the clock. Finds the longest time, in ns, that it was kept from it."""
    clock = time.perf_counter_ns
    last = clock()
    while True:
        now = clock()
        if now - last > shared[1]:
            shared[1] = now - last
        shared[0] = last = now


def calculate(shared: "memoryview[int]") -> NoReturn:
    """Finds how often a sum was not what it was the first time."""
    right = total()
    while True:
        shared[1] += total() != right
        shared[0] += 1


def total() -> float:
    """Long loops in C, with doubles in registers."""
    return math.dist(HERE, THERE)


def allocate(shared: "memoryview[int]") -> NoReturn:
    """Is in malloc most of the time."""
    while True:
        blocks = [bytes(size) for size in range(1000, 60_000, 500)]
        del blocks
        shared[0] += 1


def descend(depth: int, then: Callable[[], object]) -> None:
    """Does something so many calls further down, each with variables of the usual kinds."""
    name, rate, batch = f"level {depth}", depth * 0.5, list(range(10))
    settings = {"name": name, "rate": rate, "batch": batch}
    if depth > 0:
        descend(depth - 1, then)
    else:
        then()
    del settings


HERE = [i * 0.1 for i in range(50_000)]
THERE = [i * 0.3 for i in range(50_000)]
WAYS = {"waits": wait, "watches": watch, "calculates": calculate, "allocates": allocate}


def main() -> None:
    threads, way, descriptor, depth = sys.argv[1:]
    shared = memoryview(mmap.mmap(int(descriptor), 16)).cast("q")
    os.close(int(descriptor))
    never = threading.Event()
    for _ in range(int(threads) - 1):
        threading.Thread(target=descend, args=(int(depth), never.wait), daemon=True).start()
    print("ready", flush=True)
    descend(int(depth), lambda: WAYS[way](shared))


main()
