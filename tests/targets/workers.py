"""Computes in its main thread and in two workers, one of which waits in C, until its standard input ends."""

import os
import select
import sys
import threading

loss = 0.25
goes_on = True


def compute(limit):
    total = 0
    items = [1, 2, 3]
    while goes_on and total >= 0:
        total += limit  # @here
        total -= len(items)
    return total


def wait(pipe, purpose):
    os.read(pipe, 1)
    return purpose


if __name__ == "__main__":
    reader, writer = os.pipe()
    waiting = threading.Thread(target=wait, args=(reader, "waits"), name="waiter", daemon=True)
    computing = threading.Thread(target=compute, args=(10,), name="worker", daemon=True)
    waiting.start()
    computing.start()
    seed = 42
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        seed += 0
    goes_on = False
