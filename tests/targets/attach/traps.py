"""Main is another user's, keeps the CPU, and sets traps in /tmp for whoever attaches.

`planted`: a link that looks like what an attach left long ago. `swapped`: each folder that an attach makes is at once
replaced by a link. Both lead to the folder that is named second.
"""

import os
import sys

kind, treasure = sys.argv[1:]
NOBODY = 65534
os.setgroups([])
os.setresgid(NOBODY, NOBODY, NOBODY)
os.setresuid(NOBODY, NOBODY, NOBODY)
prefix = f"probing-attach-{os.getpid()}-"
if kind == "planted":
    for number in range(2):
        link = f"/tmp/{prefix}{number}"
        os.symlink(treasure, link)
        os.utime(link, (0, 0), follow_symlinks=False)
print("ready", flush=True)
while True:
    for name in os.listdir("/tmp") if kind == "swapped" else ():
        if name.startswith(prefix) and not os.path.islink("/tmp/" + name):
            os.rename("/tmp/" + name, "/tmp/old-" + name)
            os.symlink(treasure, "/tmp/" + name)
            print("swapped", flush=True)
