"""A program that was packed with little of the standard library. To be started with `python -I -S`.

What comes is what Python itself loads, and what a traceback needs; nothing else can be imported. Runs each line that
comes.
"""

import linecache
import sys
import traceback


class Nothing:
    """Finds no module that is not loaded or built in."""

    def find_spec(self, name, path=None, target=None):
        if name in sys.builtin_module_names:
            return None
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def step(n):
    value = n * 2
    value += 1  # @here
    return value


def failing():
    raise KeyError("none")


def caught():
    try:
        failing()
    except KeyError:
        return True


assert linecache
assert traceback
sys.meta_path.insert(0, Nothing())
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
