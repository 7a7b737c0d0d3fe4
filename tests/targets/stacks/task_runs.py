"""A task that blocks its loop, far below its coroutine, while others want to go on."""

import asyncio
import sys


def read():
    print("ready", flush=True)
    sys.stdin.readline()  # @blocks


async def inner():
    read()  # @inner


async def outer():
    await inner()  # @outer


async def other():
    await asyncio.sleep(0)


async def main():
    blocks = asyncio.create_task(outer(), name="blocks")
    follows = asyncio.create_task(other(), name="next")
    await blocks
    await follows


asyncio.run(main())
