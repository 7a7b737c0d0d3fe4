"""Objects to look at from a prompt. Main waits two functions deep."""

import sys

touched = []


class Layer:
    def __init__(self, weight):
        self.weight = weight


class Model:
    def __init__(self):
        self.layers = [Layer(0.5), Layer(0.25)]

    @property
    def computed(self):
        touched.append("computed")
        return 1

    def __getattr__(self, name):
        touched.append(name)
        raise AttributeError(name)

    def forward(self, x, *, scale=1.0):
        """Goes through all layers."""
        return x * scale


model = Model()
settings = {"learning_rate": 0.1, "epochs": 3}


def train():
    step = 17
    wait_for_the_end()
    return step


def wait_for_the_end():
    sys.stdin.read()


print("ready", flush=True)
train()
