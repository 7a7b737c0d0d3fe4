"""Runs each line that comes, so that a test decides what is called and when."""

import asyncio
import sys
import threading


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


def recursive(n):
    return n if n == 0 else 1 + recursive(n - 1)


def hostile(n):
    for _ in range(n):
        leaf(1)


def in_threads(n):
    threads = [threading.Thread(target=middle, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


trainer = Trainer()
names = globals()

print("ready", flush=True)
for line in sys.stdin:
    exec(line.replace("\\n", "\n"), names)
    print("done", flush=True)
