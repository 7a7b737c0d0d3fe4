"""Records rows and works once for every line that comes, so that a test decides when a breakpoint is passed.

A number is worked through, `busy` has threads record without end, `end` lets an exception out.
"""

import sys
import threading

import probing


def work(count):
    rate = 1.0
    for step in range(count):
        rate = rate / 2  # @rate
        probing.record("loss", step=step, value=rate, name="a name that is not short")
    return rate  # @worked


def record_on(number):
    # Each row says the same thing three times, so that a torn one would be seen.
    table = f"busy{number}"
    for n in range(sys.maxsize):
        probing.record(table, n=n, twice=2 * n, text=f"row {n} of a text that is not inline")


def main():
    for line in sys.stdin:
        word = line.strip()
        if word == "busy":
            for number in range(2):
                threading.Thread(target=record_on, args=(number,), daemon=True).start()
            print("busy", flush=True)
        elif word == "end":
            raise ValueError("it ends here")
        else:
            print(work(int(word)), flush=True)


print("ready", flush=True)
main()
