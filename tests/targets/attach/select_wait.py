"""Main waits in select."""

import os
import select

read, write = os.pipe()
print("ready", flush=True)
select.select([read], [], [], 3600)
