"""Threads that do nothing but allocate, with the GIL and without it: argv = library, for threads that are C's own."""

import ctypes
import sys
import threading
import time

libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
TEXT = b"x" * 3000


def churn():
    while True:
        [bytearray(n) for n in range(600, 4000, 100)]


def churn_without_gil():
    while True:
        libc.free(libc.strdup(TEXT))


for work in churn, churn_without_gil:
    threading.Thread(target=work, daemon=True).start()
if len(sys.argv) > 1:
    ctypes.CDLL(sys.argv[1]).storm(2)
print("ready", flush=True)
while True:
    time.sleep(0.002)
