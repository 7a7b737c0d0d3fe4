"""A child of a process that had threads; the child is looked at."""

import os
import threading
import time

event = threading.Event()
threading.Thread(target=event.wait, daemon=True).start()
parent = os.getpid()
child = os.fork()
if child == 0:
    print("ready", os.getpid(), sep="\n", flush=True)
    while os.getppid() == parent:
        time.sleep(0.01)
os.waitpid(child, 0)
