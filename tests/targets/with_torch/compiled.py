"""Calls compiled functions and a plain one for every line that comes."""

import functools
import sys

import torch


@functools.partial(torch.compile, backend="eager")
def doubled(values):
    twice = values * 2  # @doubled
    return twice


def scaled(values):
    return values * 3


def shifted(values):
    return scaled(values) + 1


class Base(torch.nn.Module):
    def helped(self, values):
        return values - 1


class Model(Base):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Identity()

    def forward(self, values):
        return self.helped(self.layer(values)) + scaled(values)


@functools.partial(torch.compile, backend="eager")
def outer(values):
    return shifted(values)


def plain(value):
    return value + 1


model = Model()
compiled = torch.compile(model, backend="eager")


def both():
    outer(torch.ones(3)), compiled(torch.ones(3))
    return doubled(torch.ones(3)).sum().item(), plain(1)


both()
print("ready", flush=True)
for _ in sys.stdin:
    print(*both(), flush=True)
