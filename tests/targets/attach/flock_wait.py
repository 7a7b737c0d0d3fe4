"""Main waits for the lock of a file."""

import fcntl
import tempfile

with tempfile.NamedTemporaryFile() as file, open(file.name) as again:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("ready", flush=True)
    fcntl.flock(again, fcntl.LOCK_EX)
