"""A process that gets no more memory."""

import resource
import time

with open("/proc/self/statm") as file:
    pages = int(file.read().split()[0])
limit = pages * resource.getpagesize() + 64 * 1024
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
print("ready", flush=True)
while True:
    time.sleep(3600)
