"""Main sleeps."""

import time

print("ready", flush=True)
while True:
    time.sleep(3600)
