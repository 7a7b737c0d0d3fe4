"""Has a child in the way that its argument names. Both say who they are and live until standard input ends or `over`.

Ends after the child, with its status.
"""

import ctypes
import multiprocessing
import os
import select
import subprocess
import sys
from multiprocessing.connection import Connection

role = "parent"
over = False


def say(line):
    # In one piece, whoever else writes.
    os.write(1, f"{line}\n".encode())


def wait(life):
    while not over and not select.select([life], [], [], 0.01)[0]:
        pass


def live(life):
    global role
    role = "child"
    say(f"child {os.getpid()}")
    wait(life)


def fork(life, how, leave):
    pid = how()
    if pid == 0:
        live(life)
        leave(0)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def multiprocess(life, method):
    child = multiprocessing.get_context(method).Process(target=live, args=(life,))
    child.start()
    return lambda: child.join() or child.exitcode


def start():
    code = "import os, sys; os.write(1, b'child %d\\n' % os.getpid()); sys.stdin.read()"
    return subprocess.Popen([sys.executable, "-c", code]).wait


if __name__ == "__main__":
    way = sys.argv[1]
    life = Connection(os.dup(0), writable=False)
    if way == "os.fork":
        end = fork(life, os.fork, sys.exit)
    elif way == "fork in C":
        # Python does not know of it.
        end = fork(life, ctypes.PyDLL(None).fork, os._exit)
    elif way == "subprocess":
        end = start()
    else:
        end = multiprocess(life, way)
    say("ready")
    wait(life)
    sys.exit(end())
