"""Ranks of a job, one of which is slower than the others.

    PROBING=1 PROBING_TORCH=collectives torchrun --nproc-per-node 2 examples/straggler.py
    probing -t all collectives

shows that rank 1 comes last, and by how much.
"""

import os
import time

import torch
import torch.distributed as dist


def load_batch(rank: int) -> torch.Tensor:
    time.sleep(0.05 if rank == 1 else 0.01)  # The fault: this rank reads from a slow disk.
    return torch.ones(1000)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print(f"rank {rank} {os.getpid()}\n", end="", flush=True)
    while True:
        batch = load_batch(rank)
        dist.all_reduce(batch)


if __name__ == "__main__":
    main()
