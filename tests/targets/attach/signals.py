"""Counts real-time signals in C while it sleeps or spins: argv = library, 0 (spin) or 1 (sleep)."""

import ctypes
import sys
import time

library = ctypes.CDLL(sys.argv[1])
library.count_signals()
sleeping = int(sys.argv[2])
print("ready", flush=True)
while True:
    if sleeping:
        time.sleep(0.01)
