"""A process that may not make memory executable (MDWE); tells what the kernel said to that, 0 if it agreed."""

import ctypes
import time

PR_SET_MDWE = 65
answer = ctypes.CDLL(None).prctl(PR_SET_MDWE, 1, 0, 0, 0)
print("ready", answer, sep="\n", flush=True)
while True:
    time.sleep(3600)
