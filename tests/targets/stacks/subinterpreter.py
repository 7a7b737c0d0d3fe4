"""Main runs code in a second interpreter, which waits for the end of the input."""

import sys

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

CODE = """
import os
def inside():
    os.read(0, 1)
print("ready", flush=True)
inside()
"""


def outside():
    run = getattr(interpreters, "exec", None) or interpreters.run_string
    run(interpreters.create(), CODE)  # @here


outside()
sys.exit()
