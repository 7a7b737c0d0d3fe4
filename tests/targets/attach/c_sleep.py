"""Main sleeps in C, with the GIL released."""

import ctypes

usleep = ctypes.CDLL(None).usleep
print("ready", flush=True)
while True:
    usleep(900_000)
