"""Runs in an environment with DuckDB: each line of standard input is SQL, each answer the CPU milliseconds it took.

A line that begins with `rows` is answered with the rows, as JSON.
"""

import json
import sys
import time

import duckdb

THREADS = 2
TABLE = """
CREATE TABLE steps AS SELECT
    make_timestamp_ns(1700000000000000000 + i * 1000) AS ts,
    i // 800 AS step,
    'model.layers.' || (i % 200) || '.attention' AS module,
    ['forward', 'pre forward', 'backward', 'step'][1 + i // 200 % 4] AS stage,
    i * 7919 % 1000003 AS duration,
    i * 104729 % 1000000007 AS bytes
FROM range(1000000) AS r(i)
"""

connection = duckdb.connect(config={"threads": THREADS})
connection.execute(TABLE)
print("ready", flush=True)
for line in sys.stdin:
    if line.startswith("rows "):
        rows = connection.execute(line.removeprefix("rows ")).fetchall()
        print(json.dumps(rows), flush=True)
        continue
    started = time.process_time()
    connection.execute(line).fetchall()
    print((time.process_time() - started) * 1e3, flush=True)
