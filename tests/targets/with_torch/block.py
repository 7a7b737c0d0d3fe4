"""Collective operations of one rank, some of them in a block that records them."""

import sys
import tempfile

import torch
import torch.distributed as dist

import probing

with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    dist.all_reduce(torch.ones(3))
    with probing.trace("collective_ops", epoch=1):
        dist.all_reduce(torch.ones(2))
        dist.broadcast(torch.ones(5), 0)
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
print("ready", flush=True)
sys.stdin.read()
