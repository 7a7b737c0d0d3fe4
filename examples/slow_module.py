"""A training that is slower than it should be: one of its modules does by hand what torch does at once.

    python examples/slow_module.py &
    probing -t slow_module.py torch on

Which one? examples/README.md asks.
"""

import os

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Rescale(nn.Module):
    """Numbers between 0 and 1."""

    def forward(self, inputs):
        return torch.sigmoid(inputs)


class SlowRescale(nn.Module):
    """The same, written in a hurry: every number goes through Python."""

    def forward(self, inputs):
        numbers = [1 / (1 + 2.718281828459045**-number) for number in inputs.detach().flatten().tolist()]
        return inputs * 0 + torch.tensor(numbers).reshape(inputs.shape)


class Block(nn.Module):
    def __init__(self, rescale):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.rescale = rescale
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, inputs):
        attended, _ = self.attention(inputs, inputs, inputs, need_weights=False)
        return inputs + self.mlp(self.rescale(attended))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(Rescale()), Block(Rescale()), Block(SlowRescale()), Block(Rescale()))
        self.head = nn.Linear(32, 1)

    def forward(self, inputs):
        return self.head(self.blocks(inputs)).mean(dim=1)


if __name__ == "__main__":
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    print(f"training, as process {os.getpid()}", flush=True)
    while True:
        inputs = torch.randn(16, 24, 32)
        loss = (model(inputs) - inputs.mean(dim=(1, 2)).unsqueeze(1)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
