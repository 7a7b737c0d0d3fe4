"""A child that C code has forked, unknown to Python; prints the child's pid.

It starts a thread and waits for the end of its input. The argument is what forks: `libc`, or `kernel` for a system call
of which libc does not know either.
"""

import ctypes
import os
import platform
import signal
import sys
import threading

SYS_CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]
event = threading.Event()


def wait():
    event.wait()  # @thread


def child():
    threading.Thread(target=wait, name="younger", daemon=True).start()
    print(os.getpid(), flush=True)
    sys.stdin.readline()  # @here
    os._exit(0)


print("ready", flush=True)
# The GIL is held meanwhile, as it is by a C extension that forks.
library = ctypes.PyDLL(None)
forks = {"libc": library.fork, "kernel": lambda: library.syscall(SYS_CLONE, signal.SIGCHLD, 0, 0, 0, 0)}
if sys.argv[1] == "libc":
    # A thread of the parent, whose state the child inherits.
    threading.Thread(target=wait, name="older", daemon=True).start()
if forks[sys.argv[1]]() == 0:
    child()
os.wait()
