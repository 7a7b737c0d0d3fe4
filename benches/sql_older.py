"""Runs in an environment with the older probing: records the table, then answers SQL as `sql_duckdb.py` does.

Its engine is in the process that recorded.
"""

import sys
import time

from sql_rows import rows

import probing
from probing import _core

# It throws rows away beyond a number of bytes.
EVERYTHING = 1 << 40

table = probing.ExternalTable("steps", ["step", "module", "stage", "duration", "bytes"], discard_threshold=EVERYTHING)
for row in rows():
    table.append(list(row))
print("ready", flush=True)
for line in sys.stdin:
    started = time.process_time()
    try:
        _core.query_json(line)
    except Exception as error:  # noqa: BLE001 (whatever it raises, the next is asked)
        print(f"error: {str(error).splitlines()[0]}", flush=True)
    else:
        print((time.process_time() - started) * 1e3, flush=True)
