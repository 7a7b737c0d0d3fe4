"""Threads in many places; prints where each is as Python itself sees it, then waits for the end of its input."""

import json
import queue
import sys
import threading
import time
import types

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 1
DEPTH = 1000
sys.setrecursionlimit(10 * DEPTH)
threading.stack_size(64 << 20 if COUNT == 1 else 0)
held = threading.Lock()
held.acquire()


def wait_for_lock():
    held.acquire()


# fmt: off
def wait_in_with():
    with (
        held
    ):
        pass
# fmt: on


def wait_in_queue():
    queue.Queue().get()


# fmt: off
def sleep():
    time.sleep(
        3600
    )
# fmt: on


def recurse(depth=DEPTH):
    if depth:
        recurse(depth - 1)
    else:
        wait_for_lock()


def generate():
    yield 1
    wait_for_lock()
    yield 2


def delegate():
    yield from generate()


def use_generator():
    for _ in delegate():
        pass


async def innermost():
    wait_for_lock()


async def outer():
    await innermost()


def use_coroutine():
    outer().send(None)


# fmt: off
def use_comprehension():
    return [
        wait_for_lock()
        for _ in range(3)
    ]
# fmt: on


def use_generator_expression():
    return sum(wait_for_lock() for _ in range(3))


def use_lambda():
    (lambda: wait_for_lock())()


def use_sort_key():
    sorted([1, 2], key=lambda item: wait_for_lock() or item)


def use_class_body():
    class Body:
        class Inner:
            wait_for_lock()


class Owner:
    def method(self):
        def closure():
            wait_for_lock()

        closure()

    @property
    def value(self):
        self.method()

    def __getattr__(self, name):
        return self.value

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return self.missing


def use_attributes():
    with Owner():
        time.time()


def use_exec():
    exec("def made():\n\n    wait_for_lock()\nmade()\n", {"wait_for_lock": wait_for_lock})


def use_eval():
    eval("\n\nwait_for_lock()", {"wait_for_lock": wait_for_lock})


def in_finally():
    try:
        raise ValueError
    except ValueError:
        pass
    finally:
        wait_for_lock()


def übung_名前_𝒳𠀀():
    wait_for_lock()


def use_other_file():
    name = "/nowhere/" + b"\xff\xe9 \xc3\xa9".decode("utf-8", "surrogateescape") + "/x.py"
    code = compile("\n" * 70_000 + "wait_for_lock()\n", name, "exec")
    exec(code, {"wait_for_lock": wait_for_lock})


def use_long_function():
    lines = ["def long():"] + ["    x = 1"] * 5_000 + ["    wait_for_lock()", "long()"]
    exec(compile("\n".join(lines), "<long>", "exec"), {"wait_for_lock": wait_for_lock})


def use_many_arguments():
    def many(a, *b, c=1, **d):
        return wait_for_lock()

    many(
        1,
        *[2, 3],
        c=4,
        **{"x": 5},
    )


def twenty(depth=20):
    return held.acquire() if depth == 0 else twenty(depth - 1)


PLACES = [
    place
    for place in list(globals().values())
    if isinstance(place, types.FunctionType)
    and not place.__code__.co_flags & 0x2A0
    and place.__name__ not in ("twenty",)
]
if COUNT > 1:
    PLACES = [twenty] * COUNT


def where(frame):
    while frame:
        code = frame.f_code
        file = code.co_filename.encode("utf-8", "surrogateescape")
        yield getattr(code, "co_qualname", code.co_name), list(file), frame.f_lineno
        frame = frame.f_back


def stacks():
    return {ident: list(where(frame)) for ident, frame in sys._current_frames().items()}


class Worker(threading.Thread):
    def __init__(self, **arguments):
        self.before = self.more = 1
        super().__init__(**arguments)
        self.after = 2


threads = []
for number, place in enumerate(PLACES):
    kind = Worker if number % 2 else threading.Thread
    named = {"name": f"loader é-{number}"} if number % 3 else {}
    thread = kind(target=place, daemon=True, **named)
    if number % 5 == 0:
        thread.__dict__["other"] = 3
    if number % 7 == 0:
        thread.__dict__.update({f"x{n}": n for n in range(40)})
    threads.append(thread)
    thread.start()
previous = {}
while True:
    now = stacks()
    now.pop(threading.get_ident())
    if now == previous and all(len(stack) > 3 for stack in now.values()):
        break
    previous = now
    time.sleep(0.05)
print("ready", flush=True)
print(json.dumps({"idents": {t.ident: [t.native_id, t.name] for t in threads}, "stacks": now}), flush=True)
sys.stdin.readline()  # @here
