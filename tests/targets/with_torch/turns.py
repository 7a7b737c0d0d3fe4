"""One rank of a training by torch's DDP, over loopback: does as many steps as somebody gives it turns.

Ranks meet by a file, so that no port has to be free. Rank 1 may be told to have bad data."""

import os
import threading

import torch
import torch.distributed as dist
from torch import nn

turns = threading.Semaphore(0)
steps = 0
is_bad = False


def batch():
    inputs = torch.randn(8, 4)
    if is_bad:
        inputs[3, 2] = float("inf")
    return inputs


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=size)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print("ready", flush=True)
    while True:
        turns.acquire()
        optimizer.zero_grad()
        model(batch()).square().mean().backward()
        optimizer.step()
        steps += 1
