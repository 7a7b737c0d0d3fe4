"""Main waits for a lock with a timeout."""

import threading

lock = threading.Lock()
lock.acquire()
print("ready", flush=True)
lock.acquire(timeout=3600)
