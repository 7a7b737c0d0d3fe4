"""Calls a compiled function and a plain one for every line that comes."""

import functools
import sys

import torch


@functools.partial(torch.compile, backend="eager")
def doubled(values):
    twice = values * 2  # @doubled
    return twice


def plain(value):
    return value + 1


def both():
    return doubled(torch.ones(3)).sum().item(), plain(1)


both()
print("ready", flush=True)
for _ in sys.stdin:
    print(*both(), flush=True)
