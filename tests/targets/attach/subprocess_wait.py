"""Main waits for a child process, which ends with standard input."""

import subprocess

child = subprocess.Popen(["cat"])
print("ready", flush=True)
child.wait()
