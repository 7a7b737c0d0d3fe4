"""Holds the GIL in a C call when told to, for longer than a test's patience but not for ever."""

import ctypes
import sys

print("ready", flush=True)
for _ in sys.stdin:
    print("holding", flush=True)
    ctypes.PyDLL(None).sleep(5)
    print("released", flush=True)
