"""A job of one rank that records itself for a while, with a loader whose worker it forks meanwhile."""

import contextlib
import signal
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import probing

# The number of a hook that is called behind ours.
LATER = 2**62


class Prepared(Dataset):
    """What its worker calls is a module, too."""

    scale = torch.nn.Linear(4, 4)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.scale(torch.full((4,), float(index))).detach()


with tempfile.NamedTemporaryFile() as meeting:
    dist.init_process_group("gloo", init_method=f"file://{meeting.name}", rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dist.barrier()
    probing.torch.enable()
    with probing.trace("memory_usage"), probing.trace("collective_ops"):
        for batch in DataLoader(Prepared(), batch_size=2, num_workers=1):
            model(batch).sum().backward()
            optimizer.step()
        with contextlib.suppress(RuntimeError):
            dist.all_reduce(torch.ones(3, dtype=torch.int16))  # @refused
        # Ctrl-C, in the middle of an operation.
        dist.group.WORLD.register_pre_hook(LATER, lambda _: signal.raise_signal(signal.SIGINT))
        with contextlib.suppress(KeyboardInterrupt):
            dist.all_reduce(torch.ones(6))  # @interrupted
        dist.group.WORLD.unregister_pre_hook(LATER)
        # Of these, torch does not tell that they are over.
        dist.reduce_scatter_tensor(torch.zeros(4), torch.ones(4))
        dist.reduce_scatter_tensor(torch.zeros(7), torch.ones(7), async_op=True).wait()
        dist.all_reduce(torch.ones(2, 3))  # @waited
    # A barrier may wait for the one that has failed, and fail, too.
    dist.all_reduce(torch.ones(9))
    print("ready", flush=True)
    sys.stdin.read()
    dist.destroy_process_group()
