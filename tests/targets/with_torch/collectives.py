"""Ranks that work together, one phase after the other: each begins when somebody sets its event."""

import contextlib
import os
import threading
import time
from datetime import timedelta

import older
import torch
import torch.distributed as dist

if "UNHOOKED" in os.environ:
    older.hide_hooks()
phases = [threading.Event() for _ in range(5)]
done = 0
losses = []


def phase(number):
    global done
    done = number
    phases[number].wait()


def train():
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.full((2, 8), 1.0 + dist.get_rank())).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.nn.utils.parameters_to_vector(model.parameters()).sum().item()


def pass_on(rank):
    """What is between two ranks is nothing that the third comes to."""
    if rank == 0:
        dist.send(torch.ones(3), 1)
    if rank == 1:
        dist.recv(torch.ones(3), 0)


def straggle(rank):
    for _ in range(20):
        if rank == 1:
            time.sleep(0.02)  # The fault: this rank always comes late.
        dist.all_reduce(torch.ones(4))  # @late


def fail(rank, small):
    with contextlib.suppress(RuntimeError):
        dist.all_reduce(torch.ones(3, dtype=torch.int16))  # @refused
    if rank == 0 and hasattr(small, "set_timeout"):
        # Nobody else comes. An older torch would wait for half an hour.
        small.set_timeout(timedelta(milliseconds=1))
        with contextlib.suppress(RuntimeError):
            dist.all_reduce(torch.ones(7), group=small, async_op=True).wait()  # @alone


def hang(rank):
    if rank == 1:
        phase(2)
    dist.all_reduce(torch.ones(3))  # @hang


def agree():
    for _ in range(3):
        dist.all_reduce(torch.ones(3))


def differ(rank):
    dist.all_reduce(torch.ones(5 if rank == 1 else 6))  # @differ


dist.init_process_group("gloo")
rank = dist.get_rank()
# In one piece: torchrun mixes what its ranks write.
print(f"ready {rank} {os.getpid()}\n", end="", flush=True)
phase(0)
weights = train()
pass_on(rank)
small = dist.new_group([0, 1])
if rank < 2:
    dist.broadcast(torch.zeros(2, 2), 0, group=small)
fail(rank, small)
straggle(rank)
phase(1)
hang(rank)
phase(3)
agree()
phase(4)
differ(rank)
dist.destroy_process_group()
