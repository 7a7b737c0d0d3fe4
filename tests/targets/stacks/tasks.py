"""Tasks that wait in many ways; prints what each awaits as Python itself sees it, then waits for its input to end."""

import asyncio
import gc
import json
import sys
import threading
import types

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 0
held = None
finish = threading.Event()


async def sleep():
    await asyncio.sleep(3600)


async def five(depth=5):
    if depth > 1:
        await five(depth - 1)
    else:
        await asyncio.sleep(3600)


async def lock():
    async with held:
        pass


async def event():
    await asyncio.Event().wait()


async def condition():
    changed = asyncio.Condition()
    async with changed:
        await changed.wait()


async def semaphore():
    await asyncio.Semaphore(0).acquire()


async def barrier():
    await asyncio.Barrier(2).wait()


async def queue_join():
    unfinished = asyncio.Queue()
    unfinished.put_nowait(1)
    await unfinished.join()


async def in_thread():
    await asyncio.to_thread(finish.wait)


async def queue_get():
    await asyncio.Queue().get()


async def queue_put():
    full = asyncio.Queue(1)
    full.put_nowait(1)
    await full.put(2)


async def future():
    await asyncio.get_running_loop().create_future()


async def other_task():
    await asyncio.create_task(sleep(), name="awaited")


async def gather():
    children = [asyncio.create_task(sleep(), name=f"child-{index}") for index in range(3)]
    nested = asyncio.gather(asyncio.create_task(sleep(), name="grandchild"))
    await asyncio.gather(*children, nested)


async def wait():
    await asyncio.wait({asyncio.create_task(sleep(), name="waited")})


async def wait_for():
    await asyncio.wait_for(asyncio.create_task(sleep(), name="limited"), 3600)


async def shield():
    await asyncio.shield(asyncio.create_task(sleep(), name="shielded"))


async def group():
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleep(), name="member")


async def generate():
    yield 1
    await sleep()
    yield 2


async def async_for():
    async for _ in generate():
        pass


async def next_of():
    numbers = generate()
    await anext(numbers)
    await anext(numbers, None)


class Context:
    async def __aenter__(self):
        await sleep()

    async def __aexit__(self, *_):
        pass


async def async_with():
    async with Context():
        pass


class Awaitable:
    def __await__(self):
        yield from sleep().__await__()


async def awaitable():
    await Awaitable()


@types.coroutine
def old_style():
    yield from sleep()


async def generator_based():
    await old_style()


async def subclassed():
    await asyncio.sleep(3600)


class OwnTask(asyncio.Task):
    pass


class Attributed(asyncio.tasks._PyTask):
    """Written in Python: its attributes are in a dictionary."""


def steps(awaitable):
    """The frames of what is awaited, outermost first."""
    found = []
    while awaitable is not None:
        for kind, awaits in ("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await"):
            if frame := getattr(awaitable, f"{kind}_frame", None):
                name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
                found.append([name, frame.f_code.co_filename, frame.f_lineno])
                awaitable = getattr(awaitable, awaits)
                break
        else:
            if isinstance(awaitable, asyncio.Future):
                break
            # What stands between two coroutines does not say what is inside.
            kinds = ("coroutine", "generator", "async_generator", "async_generator_asend")
            inside = [one for one in gc.get_referents(awaitable) if type(one).__name__ in kinds]
            awaitable = inside[0] if inside else None
    return found


def truth(tasks):
    return {
        str(id(task)): {
            "name": task.get_name(),
            "coroutine": task.get_coro().__qualname__,
            "frames": steps(task.get_coro()),
        }
        for task in tasks
    }


async def settle():
    """Until every other task waits for something."""
    me = asyncio.current_task()
    while any(task._fut_waiter is None for task in asyncio.all_tasks() if task is not me):
        await asyncio.sleep(0)


async def main():
    global held
    loop = asyncio.get_running_loop()
    held = asyncio.Lock()
    await held.acquire()
    functions = [sleep, five, lock, event, condition, semaphore, queue_get, queue_put, queue_join, future]
    functions += [other_task, gather, wait, wait_for, shield, in_thread]
    functions += [async_for, next_of, async_with, awaitable, generator_based]
    if sys.version_info >= (3, 11):
        functions += [group, barrier]
    tasks = [asyncio.create_task(function(), name=function.__name__) for function in functions]
    tasks.append(asyncio.create_task(sleep()))
    tasks.append(OwnTask(subclassed(), loop=loop, name="own"))
    tasks.append(Attributed(subclassed(), loop=loop, name="attributed"))
    if sys.version_info >= (3, 12):
        tasks.append(asyncio.Task(sleep(), loop=loop, name="eager", eager_start=True))
    tasks += [asyncio.create_task(sleep(), name=f"worker-{index}") for index in range(COUNT)]
    done = asyncio.create_task(asyncio.sleep(0), name="done")  # kept, so that asyncio still knows it
    await done
    await settle()
    second = Second()
    threading.Thread(target=second.run, name="second", daemon=True).start()
    second.ready.wait()
    end = loop.create_future()
    loop.add_reader(sys.stdin.fileno(), lambda: end.done() or end.set_result(None))
    here = asyncio.current_task()
    # 3.14 does not list the one that is written in Python.
    told = truth({*asyncio.all_tasks(), *tasks, *second.tasks} - {here})
    print("ready", flush=True)
    print(json.dumps(told), flush=True)
    await end  # @main
    finish.set()


class Second:
    """A loop in a thread of its own."""

    def __init__(self):
        self.tasks = []
        self.ready = threading.Event()

    def run(self):
        asyncio.run(self.wait())

    async def wait(self):
        asyncio.current_task().set_name("second")
        self.tasks.append(asyncio.create_task(sleep(), name="elsewhere"))
        await settle()
        asyncio.get_running_loop().call_soon(self.ready.set)
        await asyncio.Event().wait()  # @second


asyncio.run(main())
