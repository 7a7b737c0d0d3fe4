"""One rank of a job under torchrun, talking over loopback. Rank 1 loads its data until it is told that it has them."""

import os
import sys
import threading

import torch
import torch.distributed as dist

loaded = threading.Event()
rounds = 0


def load():
    loaded.wait()  # @load


def reduce(gradient):
    dist.all_reduce(gradient)  # @reduce


def train():
    global rounds
    gradient = torch.ones(3) * dist.get_rank()
    if dist.get_rank() == 1:
        load()
    reduce(gradient)
    rounds += 1
    threading.Event().wait()


def end_with_input():
    # All ranks have the input of torchrun, which may be killed.
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    threading.Thread(target=end_with_input, name="input", daemon=True).start()
    dist.init_process_group("gloo")
    # One write: ranks share the pipe.
    os.write(1, f"ready {dist.get_rank()} {os.getpid()}\n".encode())
    train()
