"""Trains and reduces in its main thread. Signals are counted, by handlers and where what they raise is caught.

Each change of these numbers is printed.
"""

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
watched = torch.zeros(4)
received = 0
caught = 0


class Raised(Exception):
    """What one of the handlers raises."""


def count(number, frame):
    global received
    received += 1


def count_and_raise(number, frame):
    global received
    received += 1
    raise Raised(number)


def step():
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
    dist.all_reduce(torch.ones(4))
    watched.add_(1)


def spin():
    told = (0, 0)
    while True:
        step()
        if told != (received, caught):
            told = (received, caught)
            print(*told, flush=True)


def wait_for_the_end():
    sys.stdin.read()
    os._exit(0)


for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGWINCH):
    signal.signal(number, count)
signal.signal(signal.SIGTERM, count_and_raise)
threading.Thread(target=wait_for_the_end, daemon=True).start()
print("ready", flush=True)
while True:
    try:
        spin()
    except Raised:
        caught += 1
