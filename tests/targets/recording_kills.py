"""Forks, for each line that it reads, a child that records until it is killed, and notes what it has recorded."""

import mmap
import os
import sys

import probing


def records(path):
    with open(path, "r+b") as file:
        witness = mmap.mmap(file.fileno(), 8)
    n = 0
    while True:
        text = f"a text of row {n}, too long to be inline"
        probing.record("t", a=n, b=float(n), c=text, d=n % 2 == 0, e=None if n % 3 == 2 else n)
        n += 1
        # In one store: `struct.pack_into` would write zeros first.
        witness[0:8] = n.to_bytes(8, "little")
        if n == 1:
            os.write(1, b"%d\n" % os.getpid())


print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        records(line.rstrip("\n"))
    os.waitpid(child, 0)
    print("over", flush=True)
