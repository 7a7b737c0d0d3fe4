"""Main waits in epoll for half a second, again and again, and notes how late it woke up."""

import select
import time

WAIT = 0.5
epoll = select.epoll()
latest = 0.0
rounds = 0
print("ready", flush=True)
while True:
    began = time.monotonic()
    epoll.poll(WAIT)
    latest = max(latest, time.monotonic() - began - WAIT)
    rounds += 1
