"""Holds the GIL in a C call from one line of its standard input to the next."""

import ctypes
import sys

libc = ctypes.PyDLL(None)  # unlike CDLL, calls keep the GIL
byte = ctypes.create_string_buffer(1)

print("ready", flush=True)
for _ in sys.stdin:
    print("holding", flush=True)
    while byte.raw != b"\n" and libc.read(0, byte, 1) == 1:
        pass
    byte.raw = b"\0"
    print("released", flush=True)
