"""Main waits for a queue."""

import queue

print("ready", flush=True)
queue.Queue().get()
