"""C threads that do nothing but allocate, and Python threads too: argv = library."""

import ctypes
import sys
import threading
import time

library = ctypes.CDLL(sys.argv[1])
library.storm(2)


def churn():
    while True:
        [bytearray(n) for n in range(600, 4000, 100)]


threading.Thread(target=churn, daemon=True).start()
print("ready", flush=True)
while True:
    time.sleep(0.002)
