"""Main checks, in C, what the kernel and libc keep for its thread: argv = library, 0 (spin) or 1 (sleep)."""

import ctypes
import sys

surroundings = ctypes.CDLL(sys.argv[1]).surroundings
surroundings.restype = ctypes.c_char_p
sleeping = int(sys.argv[2])
hurt = None
rounds = 0
print("ready", flush=True)
while True:
    hurt = surroundings(sleeping) or hurt
    rounds += 1
