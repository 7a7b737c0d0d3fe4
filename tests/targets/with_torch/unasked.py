"""A rank with operations that no call of torch's waits for, as DDP has them: what becomes of them has to be asked."""

import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef

import probing

OPERATIONS = 20
MOST = 1000


def asked_for(values):
    """Without a function of torch's in Python around it."""
    dist.group.WORLD.allreduce([values]).wait()


def seen_within(values, step):
    """How long it takes until a step has seen that an operation is over, at most."""
    begun = time.monotonic_ns()
    asked_for(values)
    step()
    return time.monotonic_ns() - begun


def said(words):
    """Waits for the answer, too."""
    print(words, flush=True)
    sys.stdin.readline()


with tempfile.NamedTemporaryFile() as meeting:
    dist.init_process_group("gloo", init_method=f"file://{meeting.name}", rank=0, world_size=1)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    probing.torch.enable()
    with probing.trace("collective_ops"):
        asked_for(torch.ones(3))
        said("ready")
        said(f"{seen_within(torch.ones(4), optimizer.step)} by a step that torch tells of")
        said(f"{seen_within(torch.ones(5), probing.step)} by a step that the program tells of")
        storages = []
        for _ in range(OPERATIONS):
            values = torch.ones(6)
            storages.append(StorageWeakRef(values.untyped_storage()))
            asked_for(values)
        del values
        # Threads of gloo's hold those that they have just done, too, for a moment.
        for _ in range(MOST):
            asked_for(torch.ones(7))
            if all(storage.expired() for storage in storages):
                break
        said(f"{sum(not storage.expired() for storage in storages)} held")
    dist.destroy_process_group()
