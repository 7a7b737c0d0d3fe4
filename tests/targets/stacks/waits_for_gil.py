"""One thread keeps the GIL inside C for ever, main and another one want it."""

import ctypes
import os
import threading
import time

keep, let_go = os.pipe()
read = ctypes.PyDLL(None).read  # unlike CDLL, calls keep the GIL
buffer = ctypes.create_string_buffer(1)


def hold():
    print("ready", flush=True)
    read(keep, buffer, 1)  # @holds


def want():
    while True:
        time.sleep(0.001)  # @wants


threading.Thread(target=want, daemon=True).start()
threading.Thread(target=hold, daemon=True).start()
while True:
    time.sleep(0.001)  # @wants
