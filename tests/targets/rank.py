"""One rank of a job: waits for the others, unless it is told (`load`) to be still loading its data.

`worker` starts a process that inherits the rank, as data loaders do.
"""

import os
import sys

RANK = int(os.environ.get("RANK", "-1"))
learning_rate = 0.1


def load():
    return sys.stdin.read()  # @load


def all_reduce():
    return sys.stdin.read()  # @all_reduce


def step():
    if "load" in sys.argv:
        load()  # @late
    all_reduce()  # @step


if "worker" in sys.argv and os.fork() == 0:
    step()
    sys.exit()
print("ready", flush=True)
step()
