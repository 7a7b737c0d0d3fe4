"""Main waits for a lock that nobody will release."""

import threading

lock = threading.Lock()
lock.acquire()
print("ready", flush=True)
lock.acquire()
