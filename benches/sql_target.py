"""Records a million rows, then waits for its standard input to end."""

import sys

from sql_rows import rows

import probing

for step, module, stage, duration, size in rows():
    probing.record("steps", step=step, module=module, stage=stage, duration=duration, bytes=size)
print("ready", flush=True)
sys.stdin.read()
