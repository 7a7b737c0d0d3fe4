"""Allocates and frees in every way that it knows, on many threads at once; says when it is done."""

import gc
import itertools
import lzma
import os
import sys
import threading
import tracemalloc
import warnings

# Of forks beside threads.
warnings.simplefilter("ignore", DeprecationWarning)

ROUNDS = 40
stop = threading.Event()
numbers = itertools.count()
kept = []


class Thing:
    pass


class Other:
    pass


def named(number):
    return f"{number:098}\U0001f40d"


NAMES = """
for _ in range(750):
    # Of two classes: where the cache has a name depends on both.
    getattr(thing, named(next(numbers)), None)
    getattr(other, named(next(numbers)), None)
"""


def names():
    """Names that only a cache of Python's keeps, until another takes its place; in code that was never there before."""
    names = {"thing": Thing(), "other": Other(), "named": named, "numbers": numbers}
    exec(compile(NAMES, os.urandom(8).hex(), "exec"), names)


def code():
    """Functions that are gone when they have run."""
    for number in range(20):
        made = compile(f"def f{number}():\n    return bytes(4000)\n\nf{number}()", os.urandom(8).hex(), "exec")
        exec(made, {})


def deep(depth):
    return bytearray(3000) if depth == 0 else deep(depth - 1)


def errors():
    for number in range(200):
        try:
            deep(number % 30)
            raise ValueError("x" * 2000)
        except ValueError as error:
            kept = error
        del kept


def cycles():
    for _ in range(100):
        one = [bytearray(2000)]
        one.append(one)
    gc.collect()


def without_gil():
    """What packs asks for memory while it does not hold the GIL."""
    lzma.compress(bytes(100_000), preset=0)


def threads():
    """Threads that end while they own what they allocated."""
    kept = []
    short = [threading.Thread(target=lambda: kept.append(bytes(100_000))) for _ in range(5)]
    for thread in short:
        thread.start()
    for thread in short:
        thread.join()


def forks():
    child = os.fork()
    if child == 0:
        for work in (names, code, errors, cycles):
            work()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def work(*kinds):
    rounds = 0
    while rounds < ROUNDS or not stop.is_set():
        for kind in kinds:
            kind()
        rounds += 1


def begin():
    stop.clear()
    # Samples that stay, of blocks as large as those that are freed.
    kept.extend(named(number) for number in range(100_000))
    kinds = [(names, code), (errors, cycles), (without_gil, names), (without_gil, threads), (code, errors)]
    running = [threading.Thread(target=work, args=kind) for kind in kinds]
    for thread in running:
        thread.start()
    return running


def end(running):
    """Forks meanwhile: what others hold then nobody gives back in the child."""
    for _ in range(5):
        forks()
    stop.set()
    for thread in running:
        thread.join()
    kept.clear()


def traced():
    """Somebody else's lock is held while memory is asked for: that of every line of code that was not there before."""
    lines = "\n".join("[1]" for _ in range(200))
    tracemalloc.start(25)
    for _ in range(ROUNDS):
        names()
        below(20, compile(lines, os.urandom(8).hex(), "exec"))
    tracemalloc.stop()


def below(depth, made):
    exec(made, {}) if depth == 0 else below(depth - 1, made)


running = []
print("ready", flush=True)
for line in sys.stdin:
    match line.strip():
        case "begin":
            running = begin()
        case "end":
            end(running)
        case "traced":
            traced()
    print("done", flush=True)
