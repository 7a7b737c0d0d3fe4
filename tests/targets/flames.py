"""Works in `hot`, which `work` calls; beside it one thread sleeps. Told `rest` it sleeps, too; ends with its input."""

import sys
import threading


def hot():
    total = 0
    for number in range(10_000):  # @first
        total += number  # @last
    return total


def work():
    while not told:
        hot()  # @work


def sleep():
    threading.Event().wait()  # @sleep


def rest():
    sys.stdin.read()


def listen():
    for _ in sys.stdin:
        break
    told.append(True)


told = []
threading.Thread(target=sleep, name="sleeper", daemon=True).start()
listener = threading.Thread(target=listen, name="listener")
listener.start()
print("ready", flush=True)
work()
print("resting", flush=True)
rest()
