"""Records a million rows as a training program would, then waits for its standard input to end."""

import sys

import probing

ROWS = 1_000_000
PER_STEP = 800
MODULES = [f"model.layers.{number}.attention" for number in range(200)]
STAGES = ["forward", "pre forward", "backward", "step"]

for row in range(ROWS):
    probing.record(
        "steps",
        step=row // PER_STEP,
        module=MODULES[row % 200],
        stage=STAGES[row // 200 % 4],
        duration=row * 7919 % 1_000_003,
        bytes=row * 104_729 % 1_000_000_007,
    )
print("ready", flush=True)
sys.stdin.read()
