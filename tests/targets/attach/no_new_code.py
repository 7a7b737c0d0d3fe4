"""A process that may not make memory executable (MDWE); `refused` if the kernel does not know that."""

import ctypes
import time

PR_SET_MDWE = 65
refused = ctypes.CDLL(None).prctl(PR_SET_MDWE, 1, 0, 0, 0)
print("ready", flush=True)
while True:
    time.sleep(3600)
