"""A program whose every name, text and file is hostile to a terminal: `hostile.py FOLDER`."""

import asyncio
import contextlib
import os
import sys
import threading
import time

# What a terminal would obey: a style, the title of the window, C1, DEL, directions, separators, moves, a forged line.
# It ends with what HTML would obey.
EVIL = "\x1b[35;5m\x1b]0;evil\x07\x9b7m\x7f\u202e\u2066\u2028\r\b\nFORGED <script>&"
# The same for a line of source and for the name of a table's column, which have less.
EVIL_COMMENT = "\x1b[35;5m\x1b]0;evil\x07\x9b7m\x7f\u202e\b"
EVIL_COLUMN = "\u202ecolumn\u2066"


class Odd:
    def __repr__(self):
        return EVIL

    __str__ = __repr__


HostileError = type(EVIL, (ValueError,), {})
Kind = type(EVIL, (Odd,), {})
odd = Kind()
value = EVIL
counter = 0
nested = {EVIL: {EVIL: odd}}
globals()[EVIL] = odd
globals()["od" + EVIL] = odder = odd


def named(function, **also):
    """`function` under a hostile name, from a file of a hostile name, with a hostile variable."""
    code = function.__code__
    if sys.version_info >= (3, 11):
        also["co_qualname"] = EVIL
    varnames = (*code.co_varnames[:-1], EVIL)
    function.__code__ = code.replace(co_name=EVIL, co_varnames=varnames, **also)
    function.__name__ = function.__qualname__ = EVIL
    return function


def fail():
    raise HostileError(EVIL)


SOURCE = f"""
def work(sleep, record):  # {EVIL_COMMENT}
    amount = bytearray(1000)
    evil = amount
    record(len(evil))  # {EVIL_COMMENT}
    sleep(0.005)  # {EVIL_COMMENT}
"""


def hostile_code(folder):
    """A function of a file whose name is hostile."""
    path = os.path.join(folder, EVIL.replace("/", "") + ".py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(SOURCE)
    names = {"__name__": EVIL}
    exec(compile(SOURCE, path, "exec"), names)
    return named(names["work"])


work = hostile_code(sys.argv[1])


def recorder():
    if not os.environ.get("PROBING"):
        return lambda amount: None
    import probing

    with contextlib.suppress(ValueError):
        probing.record(EVIL, amount=1)
    with contextlib.suppress(ValueError):
        probing.record("hostile", **{EVIL: 1})
    return lambda amount: probing.record("hostile", **{"text": EVIL, EVIL_COLUMN: amount})


def step(record):
    global counter, changing
    counter += 1
    changing = f"{EVIL}{counter}"
    work(time.sleep, record)  # @step
    with contextlib.suppress(HostileError):
        fail()


def steps():
    record = recorder()
    while True:
        step(record)


async def waits():
    task = asyncio.current_task()
    task.set_name(EVIL)
    await asyncio.sleep(3600)


def set_comm(task):
    with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm", "wb") as file:
        file.write(b"\x1b[35;5m\x9b\nFORG")


def tasks():
    set_comm(threading.get_native_id())
    asyncio.run(named(waits)())


threading.Thread(target=steps, name=EVIL, daemon=True).start()
threading.Thread(target=tasks, name="tasks" + EVIL, daemon=True).start()
set_comm(os.getpid())
print("ready", flush=True)
sys.stdin.read()
