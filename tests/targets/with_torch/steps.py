"""One rank of a training by torch's DDP that goes on for as many steps as it is told to, and keeps when each ended."""

import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

allowed = threading.Semaphore(0)
done = 0
times = []


def more(steps):
    allowed.release(steps)


def end_with_input():
    # All ranks have the input of torchrun, which may be killed.
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    threading.Thread(target=end_with_input, name="input", daemon=True).start()
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # One write: ranks share the pipe.
    os.write(1, f"ready {dist.get_rank()} {os.getpid()}\n".encode())
    while True:
        allowed.acquire()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        times.append(time.time_ns())
        optimizer.zero_grad()
        done += 1
