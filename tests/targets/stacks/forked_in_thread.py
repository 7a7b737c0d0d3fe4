"""A thread forks a child, which waits for the end of the input in a function of that thread's."""

import os
import sys
import threading


def forks():
    child = os.fork()
    if child == 0:
        print(os.getpid(), flush=True)
        os.read(0, 1)
        os._exit(0)
    os.waitpid(child, 0)


print("ready", flush=True)
thread = threading.Thread(target=forks, name="forker")
thread.start()
thread.join()
sys.exit()
