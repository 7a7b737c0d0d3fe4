"""Two threads run an interpreter each, both made by the main thread, which waits for the end of the input."""

import os
import sys
import threading

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

CODE = """
import os
def inside_{number}():
    os.read({until}, 1)
os.write({begun}, b".")
inside_{number}()
"""

begins, begun = os.pipe()
until, ends = os.pipe()


def runs(made, number):
    run = getattr(interpreters, "exec", None) or interpreters.run_string
    run(made, CODE.format(number=number, until=until, begun=begun))


def waits():
    print("ready", flush=True)
    sys.stdin.read()  # @waits


made = [interpreters.create(), interpreters.create()]
threads = [threading.Thread(target=runs, args=pair, name=f"runs-{pair[1]}") for pair in zip(made, (1, 2), strict=True)]
for thread in threads:
    thread.start()
for _ in threads:
    os.read(begins, 1)
waits()
os.close(ends)
for thread in threads:
    thread.join()
