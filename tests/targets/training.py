"""A tiny training program: with torch where that can be imported, else with classes that look the same to who asks."""

import os
import sys
import threading

try:
    import torch
except ImportError:
    torch = None


class Tensor(list):
    """As much of one as the program needs."""

    grad = None
    shape = property(lambda self: (len(self),))

    def isfinite(self):
        return all(value == value and abs(value) < float("inf") for value in self)


class Linear:
    def __init__(self):
        self.parameters = {"weight": Tensor([0.5, 0.25]), "bias": Tensor([0.0])}

    def state_dict(self):
        return dict(self.parameters)

    def named_parameters(self):
        return iter(self.parameters.items())


class Optimizer:
    def __init__(self, model):
        self.param_groups = [{"lr": 0.1, "params": [value for _, value in model.named_parameters()]}]


class Trainer:
    def __init__(self, model):
        self.model = model

    def save_checkpoint(self, path):
        if torch:
            torch.save(self.model.state_dict(), path)
        else:
            with open(path, "w") as file:
                file.write(repr(self.model.state_dict()))


if torch:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_loader = torch.utils.data.DataLoader(torch.arange(8.0).reshape(4, 2), batch_size=2)
    loss = model(next(iter(train_loader))).mean()
    loss.backward()
else:
    model = Linear()
    optimizer = Optimizer(model)
    train_loader = [Tensor([0.0, 1.0]), Tensor([2.0, 3.0])]
    loss = 0.25
    model.parameters["weight"].grad = Tensor([1.0, float("nan")])
trainer = Trainer(model)
os.chdir(os.environ["TRAINING_FOLDER"])

if __name__ == "__main__":
    threading.Thread(target=threading.Event().wait, name="loader", daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
