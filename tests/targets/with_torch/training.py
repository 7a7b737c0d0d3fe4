"""Trains a tiny model on the CPU until its input ends. A thread waits with tensors among its locals."""

import sys
import threading

import torch
from torch import nn

torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.register_buffer("seen", torch.zeros(1, dtype=torch.int64))

    def forward(self, inputs):
        self.seen += len(inputs)
        return self.layers(inputs)


class Trainer:
    def __init__(self, model):
        self.model = model

    def save_checkpoint(self, path):
        torch.save(self.model.state_dict(), path)


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
trainer = Trainer(model)
samples = torch.randn(32, 4)
train_loader = torch.utils.data.DataLoader(
    list(zip(samples, samples.sum(dim=1, keepdim=True), strict=True)), batch_size=8
)
step = 0


def train_step(inputs, targets):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss


def evaluate(over):
    images = torch.full((2, 3), 0.5, dtype=torch.float16)  # noqa: F841
    labels = torch.arange(2)  # noqa: F841
    weight = model.layers[0].weight  # noqa: F841
    nowhere = torch.empty(1000, 1000, device="meta")  # noqa: F841
    over.wait()


def wait_for_the_end(over):
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    loss = train_step(*next(iter(train_loader)))
    over = threading.Event()
    threading.Thread(target=evaluate, args=(over,), name="evaluation").start()
    threading.Thread(target=wait_for_the_end, args=(over,), name="input").start()
    print("ready", flush=True)
    while not over.is_set():
        for inputs, targets in train_loader:
            loss = train_step(inputs, targets)
            step += 1
