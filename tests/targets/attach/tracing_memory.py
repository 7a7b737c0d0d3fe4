"""Every allocation takes the GIL."""

import time
import tracemalloc

tracemalloc.start()
print("ready", flush=True)
while True:
    time.sleep(3600)
