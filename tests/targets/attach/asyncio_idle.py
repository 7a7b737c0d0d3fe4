"""An event loop with nothing to do."""

import asyncio


async def main():
    print("ready", flush=True)
    await asyncio.sleep(3600)


asyncio.run(main())
