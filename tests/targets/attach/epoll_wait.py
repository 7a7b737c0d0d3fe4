"""Main waits in epoll."""

import os
import select

read, write = os.pipe()
epoll = select.epoll()
epoll.register(read)
print("ready", flush=True)
epoll.poll(3600)
