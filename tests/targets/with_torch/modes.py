"""Threads that change tensors while modes of torch hear of all that tensors are asked, as `torch.device` does.

A line of standard input is code to run.
"""

import pathlib
import sys

import torch
from torch.overrides import TorchFunctionMode

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import laps
from laps import blocks, errors, lap  # noqa: F401 - asked for by the test

weight = torch.zeros(3)
table = {"weight": torch.zeros(3)}
heard = []


class Hears(TorchFunctionMode):
    """Is told in Python of every question, in which other threads may run."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", str(function))
        if name in ("__get__", "data_ptr", "untyped_storage", "storage_offset", "stride"):
            heard.append(name)
        return function(*args, **(kwargs or {}))


def replaces(number):
    global weight
    with Hears(), torch.device("cpu"):
        weight = torch.full((3,), float(number))
        table["weight"] = torch.full((3,), float(number))


def replaces_too(number):
    with torch.device("cpu"):
        table["weight"] = torch.full((2,), float(number))


def changes(number):
    with torch.device("cpu"):
        table["weight"].fill_(number)


torch.set_num_threads(1)
torch.set_default_device("cpu")
laps.start(replaces, replaces_too, changes)
print("ready", flush=True)
laps.serve()
