"""Main spins in C without the GIL until a file says so, then waits for a line, with no Python in between.

argv = library, a file of four zero bytes.
"""

import ctypes
import mmap
import sys
import time

library = ctypes.CDLL(sys.argv[1])
with open(sys.argv[2], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 4)
print("ready", flush=True)
library.spin_then_read(ctypes.byref(ctypes.c_int.from_buffer(shared)))
print("back", flush=True)
while True:
    time.sleep(3600)
