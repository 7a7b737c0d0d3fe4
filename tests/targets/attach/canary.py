"""Main checks, in C, that no register and no byte below its stack changes: argv = library, 0 (spin) or 1 (sleep)."""

import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
sleeping = int(sys.argv[2])
hurt = rounds = 0
print("ready", flush=True)
while True:
    hurt |= library.canary(sleeping)
    rounds += 1
