"""Main waits for a child that shares its memory, where no signal reaches it, until a line comes: argv = library."""

import ctypes
import sys
import time

library = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
library.wait_in_vfork()
print("back", flush=True)
while True:
    time.sleep(3600)
