"""Main checks, in C, that no register and no byte below its stack changes: argv = library, 0 (spin) or 1 (sleep)."""

import ctypes
import sys

canary = ctypes.CDLL(sys.argv[1]).canary
sleeping = int(sys.argv[2])
hurt = rounds = 0
print("ready", flush=True)
while True:
    hurt += canary(sleeping)
    rounds += 1
