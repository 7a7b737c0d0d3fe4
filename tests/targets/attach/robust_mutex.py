"""A thread waits in C and holds a robust mutex; `library.next_owner()` ends it and says what its heir is told."""

import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
library.own_robust_mutex()
print("ready", flush=True)
while True:
    pass
