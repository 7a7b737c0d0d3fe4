"""Runs event loops whose tasks talk, in the threads that its arguments name, until its standard input ends."""

import asyncio
import sys
import threading

ticks = 0
ready = False


async def talk():
    global ticks
    while True:
        ticks += 1
        if ready:
            sys.stdout.write("tick\n")
            sys.stdout.flush()
        await asyncio.sleep(0.005)


def say_ready():
    global ready
    print("ready", flush=True)
    ready = True


def start(name):
    begun = threading.Event()

    async def for_ever():
        task = asyncio.create_task(talk())
        begun.set()
        await task

    threading.Thread(target=lambda: asyncio.run(for_ever()), name=name, daemon=True).start()
    begun.wait()


async def main():
    say_ready()
    task = asyncio.create_task(talk())
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    task.cancel()


if __name__ == "__main__":
    names = sys.argv[1:]
    for name in names:
        if name != "main":
            start(name)
    if "main" in names:
        asyncio.run(main())
    else:
        say_ready()
        sys.stdin.read()
