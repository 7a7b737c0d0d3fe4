"""Rounds of the same work: a program looks the same for as long as somebody looks, and has one result all the same.

Each round begins from the same numbers, so all have the same result. What is printed at the end is their set: one,
whatever was done to the process meanwhile, and the same as of a program that nobody looked at.
"""

import os
import select
import sys

results = set()


def say(*words):
    """One write: ranks share the pipe."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def is_over():
    """Whether the test has let go: standard input has ended."""
    return bool(select.select([0], [], [], 0)[0])


def add(result):
    """Keep what a round gave; say who is ready after the first."""
    is_first = not results
    results.add(repr(result))
    return is_first


def tell():
    say("result", *sorted(results))
    sys.stdout.flush()
