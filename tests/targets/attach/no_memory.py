"""A process that gets no more memory: argv = AS (none at all) or DATA (none that it may write to)."""

import resource
import sys
import time

FIELD = {"AS": "VmSize", "DATA": "VmData"}[sys.argv[1]]
with open("/proc/self/status") as file:
    kib = next(int(line.split()[1]) for line in file if line.startswith(FIELD))
limit = getattr(resource, "RLIMIT_" + sys.argv[1])
resource.setrlimit(limit, (kib * 1024 + 64 * 1024, resource.RLIM_INFINITY))
print("ready", flush=True)
while True:
    time.sleep(3600)
