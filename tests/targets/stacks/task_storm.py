"""Tasks that come, go and switch as fast as they can, until the input ends."""

import asyncio
import sys


async def leaf():
    await asyncio.sleep(0)


async def branch():
    await leaf()


async def short():
    await branch()


async def busy():
    while True:
        await asyncio.gather(*(short() for _ in range(5)))


async def main():
    loop = asyncio.get_running_loop()
    end = loop.create_future()
    loop.add_reader(sys.stdin.fileno(), lambda: end.done() or end.set_result(None))
    tasks = [asyncio.create_task(busy(), name=f"busy-{index}") for index in range(20)]
    print("ready", flush=True)
    await end
    for task in tasks:
        task.cancel()


asyncio.run(main())
