"""A job of one rank whose torch has no hooks of process groups, and of a child of it that is one itself."""

import contextlib
import os
import sys
import tempfile
import warnings

import older
import torch
import torch.distributed as dist

import probing

older.hide_hooks()
# Python's, of forks in a process with threads.
warnings.simplefilter("ignore", DeprecationWarning)


@contextlib.contextmanager
def group():
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        yield
        dist.destroy_process_group()


def work():
    dist.all_reduce(torch.ones(2, 3))
    dist.broadcast(torch.ones(4, dtype=torch.int64), 0)
    dist.all_gather([torch.zeros(5)], torch.ones(5))
    dist.all_gather_into_tensor(torch.zeros(6), torch.ones(6))
    # Of these, torch does not tell that they are over.
    dist.reduce_scatter_tensor(torch.zeros(4), torch.ones(4))
    dist.reduce_scatter_tensor(torch.zeros(3), torch.ones(3), async_op=True).wait()
    dist.all_reduce(torch.ones(7, dtype=torch.float64), async_op=True).wait()
    dist.barrier()
    with contextlib.suppress(RuntimeError):
        dist.all_reduce(torch.ones(3, dtype=torch.int16))
    dist.all_reduce(torch.ones(8))


def train(model):
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()


def fork():
    child = os.fork()
    if child == 0:
        with group(), probing.trace("collective_ops"):
            dist.all_reduce(torch.ones(10))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return child


with group():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    with probing.trace("collective_ops"):
        work()
        train(model)
    dist.all_reduce(torch.ones(9))
    with probing.trace("collective_ops"):
        dist.all_reduce(torch.ones(11))
    del model
child = fork()
with group():
    print(f"ready {child}", flush=True)
    sys.stdin.read()
    probing.stop()
