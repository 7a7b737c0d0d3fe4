"""A process that may not be read from outside: it said so itself."""

import asyncio
import ctypes
import sys
import threading

PR_SET_DUMPABLE = 4


async def nap(length):
    await asyncio.sleep(length)  # @nap


def wait(event):
    event.wait()  # @wait


def hear(word):
    number = 42
    line = sys.stdin.readline()  # @hear
    return word, number, line


def hold_the_gil():
    line = ctypes.create_string_buffer(1)
    ctypes.PyDLL(None).read(0, line, 1)  # @hold


ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
threading.Thread(target=wait, args=(threading.Event(),), name="waiter", daemon=True).start()
threading.Thread(target=asyncio.run, args=(nap(1000),), name="loop", daemon=True).start()
print("ready", flush=True)
if "hold" in sys.argv:
    hold_the_gil()  # @main-holds
else:
    hear("given")  # @main-hears
