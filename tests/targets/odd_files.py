"""Calls functions whose files are not what source is in: `odd_files.py PATH…`."""

import sys


def waits():
    print("ready", flush=True)
    sys.stdin.read()


call = waits
for path in sys.argv[1:]:
    names = {"call": call}
    exec(compile("def through():\n    call()  # @here\n", path, "exec"), names)
    call = names["through"]
call()
