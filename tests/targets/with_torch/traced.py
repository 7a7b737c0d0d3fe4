"""Does what each line of its standard input says, in its own names, and says `done`. Has models already."""

import contextlib
import sys

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

torch.set_num_threads(1)
torch.manual_seed(7)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, inputs):
        return inputs + self.mlp(self.norm(inputs))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 1)
        self.fails = False
        self.poisoned = None

    def forward(self, inputs):
        for number, layer in enumerate(self.layers):
            inputs = layer(inputs)
            if number == self.poisoned:
                inputs = inputs * float("inf")
        # Belongs to nothing, and is gone after the call.
        inputs = nn.Identity()(inputs)
        if self.fails:
            raise ValueError("it fails")
        return self.head(inputs)


model = Model()
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
other = torch.optim.Adam(encoder.parameters(), lr=0.001)


def steps(count, passes=1):
    for _ in range(count):
        for _ in range(passes):
            model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def both(count):
    for _ in range(count):
        encoder(torch.randn(2, 3, 8)).pow(2).mean().backward()
        other.step()
        other.zero_grad()
        steps(1)


def trained(module):
    module(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()


def anew(count):
    """One model after the other, each where the one before was."""
    for _ in range(count):
        trained(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)))


def thawed():
    """Parameters that get gradients in one step and not in the next."""
    tuned = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    first = tuned[0]
    for passes, weight, bias in ((1, False, False), (3, True, True), (2, False, True), (1, True, True)):
        first.weight.requires_grad = weight
        first.bias.requires_grad = bias
        for _ in range(passes):
            trained(tuned)


class Heard(TorchFunctionMode):
    """What is asked of tensors while it is entered."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(repr(getattr(func, "__self__", func)))
        return func(*args, **(kwargs or {}))


def heard():
    with Heard() as mode:
        steps(2)
    return [name for name in mode.names if "requires_grad" in name or "is_leaf" in name or "hook" in name]


def fail():
    model.fails = True
    with contextlib.suppress(ValueError):
        model(torch.randn(4, 8))
    model.fails = False


def change(tensor):
    tensor.add_(1)  # @add
    tensor[1] = 5  # @item
    tensor += 2  # @plus
    tensor.mul_(2).sub_(1)  # @two


def hooks():
    return sum(len(parameter._post_accumulate_grad_hooks or ()) for parameter in model.parameters())


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
