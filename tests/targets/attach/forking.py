"""Forks whenever it is told to, and shows every warning."""

import os
import sys
import warnings

warnings.simplefilter("always")

print("ready", flush=True)
for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    print("forked", flush=True)
