"""A process with a second interpreter."""

import time

try:
    import _interpreters as interpreters  # 3.13
except ImportError:
    import _xxsubinterpreters as interpreters

second = interpreters.create()
print("ready", flush=True)
while True:
    time.sleep(3600)
