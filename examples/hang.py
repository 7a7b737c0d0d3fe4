"""Ranks of a job, one of which leaves the loop early: the others wait for it for ever.

    PROBING=1 PROBING_TORCH=collectives torchrun --nproc-per-node 2 examples/hang.py
    probing -t all collectives

shows that rank 1 has not come to the operation in which rank 0 waits, and where it was last.
"""

import os
import time

import torch
import torch.distributed as dist


def batches(rank: int) -> int:
    return 5 if rank == 0 else 4  # The fault: the data is not divided evenly.


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print(f"rank {rank} {os.getpid()}\n", end="", flush=True)
    for _ in range(batches(rank)):
        gradient = torch.ones(1000)
        dist.all_reduce(gradient)
    while True:  # "Evaluating": rank 1 is busy with something else.
        time.sleep(0.1)


if __name__ == "__main__":
    main()
