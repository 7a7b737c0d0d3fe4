"""Main sleeps often and briefly."""

import time

print("ready", flush=True)
while True:
    time.sleep(0.001)
