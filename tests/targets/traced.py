"""Runs each line that comes, so that a test decides what is called and when."""

import asyncio
import functools
import hashlib
import struct
import sys
import threading
import time


def leaf(x):
    return x + 1


def middle(x):
    return leaf(x) * 2


class Trainer:
    def fit(self, lr):
        rate = lr * 0.5
        rate = rate + middle(1)
        return rate

    @staticmethod
    def fixed(x):
        return leaf(x)

    @classmethod
    def made(cls, x):
        return leaf(x)


def failing(x):
    raise ValueError(x)


def caught(x):
    try:
        failing(x)
    except ValueError:
        return leaf(x)


def counted(n):
    yield from range(n)


async def waiting(n):
    await asyncio.sleep(0)
    return n


def failing_generator(n):
    total = n
    yield total
    total = total + 1
    raise KeyError(total)


async def failing_coroutine(n):
    total = n
    await asyncio.sleep(0)
    total = total + 1
    raise KeyError(total)


async def failing_stream(n):
    total = n
    yield total
    total = total + 1
    raise KeyError(total)


def refused(what):
    """Go through something that suspends itself until it fails."""

    async def each():
        return [value async for value in what]

    try:
        if hasattr(what, "__aiter__"):
            asyncio.run(each())
        elif hasattr(what, "__await__"):
            asyncio.run(what)
        else:
            list(what)
    except KeyError as error:
        return error.args[0]


def recursive(n):
    return n if n == 0 else 1 + recursive(n - 1)


def hostile(n):
    for _ in range(n):
        leaf(1)


def spend(seconds):
    """Do nothing but call for so much CPU time of the process."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        hostile(10_000)


def in_threads(n):
    threads = [threading.Thread(target=middle, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def meeting(barrier):
    barrier.wait()
    return leaf(0)


def at_once(n):
    """So many threads that are all in a function at the same time."""
    barrier = threading.Barrier(n)
    threads = [threading.Thread(target=meeting, args=(barrier,)) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def negative(x):
    return -x


class Number:
    def __add__(self, other):
        return leaf(other)


def through_c():
    """Calls functions of Python that nothing but C calls."""
    ordered = sorted([1, 2], key=negative)
    mapped = list(map(leaf, [1]))
    part = functools.partial(middle, 3)()
    return ordered, mapped, part, Number() + 1


def forever():
    while True:
        middle(1)


def trained(steps):
    """The digest of every value of a computation whose rounding shows the order of all that it does."""
    digest = hashlib.sha256()
    weight, lr = 0.1, 0.05
    for step in range(steps):
        gradient = sum(middle(x) * weight - x / 3 for x in range(5))
        lr = lr * 0.999 if step % 7 else lr
        weight = weight - lr * gradient / 11
        digest.update(struct.pack("<d", weight))
        digest.update(repr(sorted([weight, lr, gradient], key=negative)).encode())
    return digest.hexdigest()


def counting(n):
    """Calls nothing but functions of C."""
    for _ in range(n):
        abs(-1)


def spend_in_c(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        counting(10_000)


def summed(n):
    return sum(leaf(x) for x in range(n))


def first_elsewhere():
    """Calls a function that something else has called before it."""
    summed(2)
    return leaf(1)


trainer = Trainer()
names = globals()

print("ready", flush=True)
for line in sys.stdin:
    exec(line.replace("\\n", "\n"), names)
    print("done", flush=True)
