"""One rank of a small training by torch's DDP, over loopback. It says when it has done three steps, and waits."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    # One write: ranks share the pipe.
    os.write(1, f"ready {dist.get_rank()} {os.getpid()}\n".encode())
    # All ranks have the input of torchrun, which may be killed.
    sys.stdin.read()
    os._exit(0)
