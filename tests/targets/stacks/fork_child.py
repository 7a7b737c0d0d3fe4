"""A child of a process with threads; prints the child's pid. The child waits for the end of its input."""

import os
import sys
import threading

event = threading.Event()
threading.Thread(target=event.wait, daemon=True).start()


def child():
    sys.stdin.readline()  # @here


print("ready", flush=True)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    child()
    os._exit(0)
os.wait()
