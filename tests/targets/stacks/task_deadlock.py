"""Two tasks that take two locks in different orders: neither ever goes on."""

import asyncio
import sys


async def transfer(source, destination, reached, other):
    async with source:  # @first
        reached.set()
        await other.wait()
        async with destination:  # @second
            pass


async def main():
    checking, savings = asyncio.Lock(), asyncio.Lock()
    one, two = asyncio.Event(), asyncio.Event()
    tasks = [
        asyncio.create_task(transfer(checking, savings, one, two), name="rent"),
        asyncio.create_task(transfer(savings, checking, two, one), name="refund"),
    ]
    loop = asyncio.get_running_loop()
    end = loop.create_future()
    loop.add_reader(sys.stdin.fileno(), lambda: end.done() or end.set_result(None))
    while not checking._waiters or not savings._waiters:
        await asyncio.sleep(0)
    print("ready", flush=True)
    await asyncio.wait([end, *tasks], return_when=asyncio.FIRST_COMPLETED)


asyncio.run(main())
