"""A training whose loss turns NaN: one of its modules divides by nothing when it is given the wrong batch.

    PROBING_TORCH=nan probing run -- python examples/nan.py

It gives up when it sees the loss, many modules later. Where did it begin? examples/README.md asks.
"""

import os
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Standardize(nn.Module):
    """Mean 0, deviation 1. The deviation of equal numbers is 0."""

    def forward(self, inputs):
        return (inputs - inputs.mean(dim=1, keepdim=True)) / inputs.std(dim=1, keepdim=True)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.standardize = Standardize()

    def forward(self, inputs):
        return torch.tanh(self.linear(self.standardize(inputs)))


model = nn.Sequential(nn.Flatten(), nn.ReLU(), Block(), Block(), nn.Linear(16, 1))


def batch(step):
    """Eight samples. One of step 57 is dead: a sensor that was unplugged."""
    inputs = torch.randn(8, 4, 4)
    if step == 57:
        inputs[3] = -1
    return inputs


if __name__ == "__main__":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print(f"training, as process {os.getpid()}", flush=True)
    for step in range(1000):
        inputs = batch(step)
        loss = (model(inputs) - inputs.mean(dim=(1, 2)).unsqueeze(1)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not torch.isfinite(loss):
            sys.exit(f"step {step}: the loss is {loss.item()}")
