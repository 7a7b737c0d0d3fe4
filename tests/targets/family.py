"""Starts a Python child by its interpreter's path, tells its pid, and waits with it."""

import subprocess
import sys

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print("ready", flush=True)
print(child.pid, flush=True)
sys.stdin.read()
child.communicate()
