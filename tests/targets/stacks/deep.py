"""Recurses as deep as Python lets it and waits there for the end of its input."""

import sys
import threading

# Before 3.11 each call needs C stack, too.
DEPTH = 10_000
sys.setrecursionlimit(DEPTH + 100)
threading.stack_size(512 << 20)


def recurse(depth):
    if depth:
        recurse(depth - 1)
    else:
        sys.stdin.readline()  # @here


threading.Thread(target=recurse, args=(DEPTH,), name="deep").start()
print("ready", flush=True)
