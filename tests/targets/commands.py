"""Does what each line of its standard input says, in its own namespace, and says `done`."""

import sys

loss = 0.25


def train_step(batch):
    return loss / batch  # @here


print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
