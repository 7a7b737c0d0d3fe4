"""Prints the CPU seconds of the quickest of several fib(25), all threads of the process counted."""

import time


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def seconds() -> float:
    started = time.process_time()
    fib(25)
    return time.process_time() - started


print(min(seconds() for _ in range(12)))
