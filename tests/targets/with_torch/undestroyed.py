"""A job of one rank that ends without destroying its process group, as many programs do, and so does its child."""

import os
import sys
import warnings

import torch
import torch.distributed as dist

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
print("ready", flush=True)
sys.stdin.read()
dist.all_reduce(torch.ones(3))
warnings.simplefilter("ignore", DeprecationWarning)
child = os.fork()
if child == 0:
    sys.exit()
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
print("over", flush=True)
