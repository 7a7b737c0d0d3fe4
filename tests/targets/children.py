"""Counts the children that it has, and the signals that say that one has ended: it starts none."""

import os
import signal
import sys

signals = []
signal.signal(signal.SIGCHLD, lambda number, frame: signals.append(number))


def seen():
    try:
        return signals, os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return signals, "no children"


print("ready", flush=True)
sys.stdin.read()
