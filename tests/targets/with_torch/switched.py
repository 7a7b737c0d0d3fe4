"""Threads that train and that reduce, beside which all that is recorded of torch is switched on and off."""

import gc
import os
import pathlib
import sys
import threading

import older
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import laps
from laps import blocks, errors, lap  # noqa: F401 - asked for by the test

import probing  # noqa: F401 - asked for by the test

if "UNHOOKED" in os.environ:
    older.hide_hooks()
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
groups = [dist.new_group([0]) for _ in range(2)]
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
parallel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizers = [torch.optim.SGD(one.parameters(), lr=0.001) for one in (model, parallel)]
watched = torch.zeros(4)
entered, leave = threading.Event(), threading.Event()
held = []
# The program's own: what torch goes through in each step is not empty.
register_optimizer_step_pre_hook(lambda *_: None)


def train(network, optimizer):
    optimizer.zero_grad()
    network(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()


def trains(_):
    train(model, optimizers[0])


def trains_in_parallel(_):
    train(parallel, optimizers[1])


def reduces(_):
    dist.all_reduce(torch.ones(4))


def reduces_in_a_group(_):
    dist.all_reduce(torch.ones(4), group=groups[0])


def reduces_later(_):
    work = dist.all_reduce(torch.ones(4), group=groups[1], async_op=True)
    work.wait()


def changes(number):
    watched.fill_(number)


def hold(*_):
    """Hold a thread while its optimizer goes through its hooks."""
    if threading.current_thread().name == "held":
        entered.set()
        leave.wait()


def step():
    """Train once, alone, and tell by what it failed."""
    network = torch.nn.Linear(8, 1)
    try:
        train(network, torch.optim.SGD(network.parameters(), lr=0.001))
    except RuntimeError as error:
        held.append(str(error))
    else:
        held.append("trained")


def step_and_be_held():
    register_optimizer_step_pre_hook(hold)
    # It goes on to another after that.
    register_optimizer_step_pre_hook(lambda *_: None)
    threading.Thread(target=step, name="held", daemon=True).start()
    entered.wait()


def let_go():
    leave.set()
    while not held:
        pass
    return held


def callables(name):
    """Count those of a name that there are."""
    return sum(type(one) is type(len) and one.__name__ == name for one in gc.get_objects())


def own_hooks():
    """Count what is left of ours in torch, but for what process groups have."""
    kinds = sys.modules[register_optimizer_step_pre_hook.__module__]
    of_optimizers = [*kinds._global_optimizer_pre_hooks.values(), *kinds._global_optimizer_post_hooks.values()]
    of_parameters = [
        len(one._post_accumulate_grad_hooks or ()) for one in [*model.parameters(), *parallel.parameters()]
    ]
    return sum(one.__module__ == "probing._probe" for one in of_optimizers), sum(of_parameters)


laps.start(trains, trains_in_parallel, reduces, reduces_in_a_group, reduces_later, changes)
print("ready", flush=True)
laps.serve()
