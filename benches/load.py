"""Other programs that want the CPU, as on a machine that is shared."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

# How many there are: the load that the machine shows beside what is measured.
LOAD = 8


@contextlib.contextmanager
def load() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(LOAD):
            program = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
            stack.callback(program.wait)
            stack.callback(program.kill)
        yield
