"""A job of one rank whose torch has no hooks of process groups, as those before 2.15."""

import contextlib
import sys
import tempfile

import torch
import torch.distributed as dist

import probing

for kind in ("pre", "post"):
    for what in ("register", "unregister"):
        delattr(dist.ProcessGroup, f"{what}_{kind}_hook")
del torch._C._distributed_c10d.HookOpName


def work():
    dist.all_reduce(torch.ones(2, 3))
    dist.broadcast(torch.ones(4, dtype=torch.int64), 0)
    dist.all_gather([torch.zeros(5)], torch.ones(5))
    dist.all_gather_into_tensor(torch.zeros(6), torch.ones(6))
    dist.all_reduce(torch.ones(7, dtype=torch.float64), async_op=True).wait()
    dist.barrier()
    with contextlib.suppress(RuntimeError):
        dist.all_reduce(torch.ones(3, dtype=torch.int16))
    dist.all_reduce(torch.ones(8))


with tempfile.NamedTemporaryFile() as meeting:
    dist.init_process_group("gloo", init_method=f"file://{meeting.name}", rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    methods = {name: value for name, value in vars(dist.ProcessGroup).items() if callable(value)}
    with probing.trace("collective_ops"):
        work()
        model(torch.ones(2, 4)).sum().backward()
    assert all(vars(dist.ProcessGroup)[name] is value for name, value in methods.items())
    dist.all_reduce(torch.ones(9))
    print("ready", flush=True)
    sys.stdin.read()
    probing.stop()
    dist.destroy_process_group()
