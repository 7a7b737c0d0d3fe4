"""Holds the GIL in C from one line of its standard input to the next."""

import ctypes
import sys

libc = ctypes.PyDLL(None)  # unlike CDLL, calls keep the GIL
byte = ctypes.create_string_buffer(1)
interval = sys.getswitchinterval()

print("ready", flush=True)
for _ in sys.stdin:
    sys.setswitchinterval(1000)  # between two calls nobody else gets it, either
    libc.write(1, b"holding\n", 8)
    while byte.raw != b"\n" and libc.read(0, byte, 1) == 1:
        pass
    byte.raw = b"\0"
    sys.setswitchinterval(interval)
    print("released", flush=True)
