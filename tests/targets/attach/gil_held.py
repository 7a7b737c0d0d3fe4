"""Main keeps the GIL inside C, then says so, then sleeps."""

import ctypes
import time

usleep = ctypes.PyDLL(None).usleep
print("ready", flush=True)
usleep(700_000)
print("released", flush=True)
while True:
    time.sleep(3600)
