"""An event loop that is never idle."""

import asyncio


async def main():
    print("ready", flush=True)
    while True:
        await asyncio.sleep(0)


asyncio.run(main())
