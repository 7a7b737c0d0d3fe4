"""Calls a layer that gives no numbers when a line of its standard input names it, and says `done`."""

import functools
import sys

import torch
from torch import nn

import probing


def decorated(function):
    @functools.wraps(function)
    def around(*args):
        return function(*args)

    return around


class Plain(nn.Module):
    def forward(self, inputs):  # @plain
        return inputs * float("nan")


class Decorated(nn.Module):
    @decorated  # @decorated
    def forward(self, inputs):
        return inputs * float("nan")


def patch(inputs):  # @own
    return inputs * float("nan")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain, self.decorated, self.own, self.native = Plain(), Decorated(), Plain(), Plain()
        self.own.forward = patch
        self.native.forward = torch.neg

    def forward(self, name, inputs):
        return self.get_submodule(name)(inputs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    model = Model()
    print("ready", flush=True)
    for line in sys.stdin:
        name, _, step = line.strip().partition(" ")
        if step:
            probing.step(int(step))
        model(name, torch.full((2,), float("nan")))
        print("done", flush=True)
