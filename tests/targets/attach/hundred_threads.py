"""A hundred threads that wait."""

import threading

event = threading.Event()
threads = [threading.Thread(target=event.wait) for _ in range(100)]
for thread in threads:
    thread.start()
print("ready", flush=True)
event.wait()
