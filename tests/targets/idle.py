"""Waits for its standard input to end, and does nothing else."""

import sys

loss = 0.25
step = 7


def train_step(batch):
    return loss / batch


print("ready", flush=True)
sys.stdin.read()
