"""Threads that use all that can be switched on and off without torch: all of them, or those that are named."""

import asyncio
import gc
import importlib._bootstrap
import json
import os
import pathlib
import sys
import tempfile
import threading

import laps
from laps import blocks, errors, lap  # noqa: F401 - asked for by the test


class Settings:
    """Whose attributes change."""

    rate = 0


class Falls:
    """Raises where nobody can catch it."""

    def __del__(self):
        raise ValueError("in a destructor")


class Slow:
    """A finder of modules that a test holds inside of itself."""

    def __init__(self):
        self.entered, self.leave = threading.Event(), threading.Event()

    def find_spec(self, name, path=None, target=None):
        if name == builtin and threading.current_thread().name == "held":
            self.entered.set()
            self.leave.wait()
        return None


settings = Settings()
level = 0
table = {"count": 0}
layers = [0, 0, 0]
loop = asyncio.new_event_loop()
# One that exists and that nobody has imported.
builtin = next(name for name in sorted(sys.builtin_module_names) if name not in sys.modules)
slow = Slow()
found = []
# What could be imported, and is not.
folder = tempfile.mkdtemp()
pathlib.Path(folder, "torch.py").write_text("")
sys.path.append(folder)
# The program's own hooks, which stay silent.
threading.excepthook = lambda _: None
sys.unraisablehook = lambda _: None
sys.excepthook = lambda *_: None


def inner(number):
    total = number
    for step in range(3):
        total += step  # @here
    return total


def numbers(count):
    yield from range(count)


def calls(number):
    kept = [inner(one) for one in numbers(4)]
    json.dumps({"number": number, "kept": kept})


def changes(number):
    global level
    level = number
    settings.rate = number
    table["count"] = number
    layers[-2] = number
    # Few values: the C library keeps each for good.
    os.environ["SWITCHED"] = str(number % 10)


def allocates(number):
    small = [bytes(300 + number % 7) for _ in range(200)]
    large = [bytearray(100_000) for _ in range(8)]
    del small, large


def raises(_):
    try:
        raise KeyError("caught")
    except KeyError:
        pass
    Falls()


def begins(_):
    thread = threading.Thread(target=inner, args=(None,), name="falls")
    thread.start()
    thread.join()


def imports(_):
    if importlib._bootstrap._find_spec(builtin, None) is None:
        raise ModuleNotFoundError(builtin)


def prints(_):
    sys.stdout.write("")
    sys.stderr.write("")


async def nothing():
    await asyncio.sleep(0)


def awaits(_):
    asyncio.run_coroutine_threadsafe(nothing(), loop).result()


def look_up():
    """Ask for a module, and be held in the middle of it."""
    found.append(importlib._bootstrap._find_spec(builtin, None) is not None)


def hold():
    sys.meta_path.insert(0, slow)


def look_up_and_be_held():
    thread = threading.Thread(target=look_up, name="held", daemon=True)
    thread.start()
    slow.entered.wait()


def let_go():
    slow.leave.set()
    while not found:
        pass
    sys.meta_path.remove(slow)
    return found


def own_finders():
    """Count finders of modules that are not Python's own."""
    return sum(type(finder).__module__ == "probing._probe" for finder in sys.meta_path)


threading.Thread(target=loop.run_forever, name="loop", daemon=True).start()
works = [calls, changes, allocates, raises, begins, imports, prints, awaits]
laps.start(*(work for work in works if work.__name__ in sys.argv[1:] or not sys.argv[1:]))
gc.collect()
print("ready", flush=True)
laps.serve()
