"""Main spends its time in the garbage collector."""

import gc

objects = [[i, {i: [i]}] for i in range(100_000)]
print("ready", flush=True)
while True:
    gc.collect()
