"""Calls a function over and over in its main thread.

Each signal is counted by its handler, and again where what the handler raises is caught; each change of these numbers
is printed. A line of standard input is code that another thread runs.
"""

import os
import signal
import sys
import threading

values = [1, 2, 3]
state = {"k": 0}
received = 0
caught = 0


class Raised(Exception):
    """What one of the handlers raises."""


def count(number, frame):
    global received
    received += 1


def count_and_raise(number, frame):
    global received
    received += 1
    raise Raised(number)


def slow(k):
    """Swallows all that it can."""
    try:
        return sum(range(200)) < k
    except Exception:
        return False


def busy(k):
    total = k  # @line
    total += 1
    if k % 50 == 0:
        try:
            raise LookupError(k)
        except LookupError as error:
            sys.excepthook(LookupError, error, error.__traceback__)
            total = 0
    return total


def spin():
    told = (0, 0)
    while True:
        state["k"] += 1
        os.environ["SIGNALLED"] = str(state["k"] % 10)
        busy(state["k"])
        if told != (received, caught):
            told = (received, caught)
            print(*told, flush=True)


def obey():
    for line in sys.stdin:
        exec(line, globals())
        print("done", flush=True)
    os._exit(0)


if __name__ == "__main__":
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGWINCH):
        signal.signal(number, count)
    signal.signal(signal.SIGTERM, count_and_raise)
    # What nobody catches is told here by the program itself.
    sys.excepthook = lambda *_: None
    threading.Thread(target=obey, daemon=True).start()
    print("ready", flush=True)
    while True:
        try:
            spin()
        except (Raised, KeyboardInterrupt):
            caught += 1
