"""Main waits for a child process."""

import subprocess

child = subprocess.Popen(["sleep", "3600"])
print("ready", flush=True)
child.wait()
