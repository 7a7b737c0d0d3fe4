"""Main waits in poll."""

import os
import select

read, write = os.pipe()
poll = select.poll()
poll.register(read)
print("ready", flush=True)
poll.poll(3_600_000)
