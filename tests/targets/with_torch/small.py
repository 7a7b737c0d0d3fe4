"""Has small tensors, and changes one in place when its standard input says so."""

import sys

import torch

few = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
many = torch.arange(12).reshape(4, 3).t()
meta = torch.zeros(3, device="meta")
# As FSDP leaves the parameters of a layer that is not in use: views of memory that is gone.
released = torch.zeros(64)[32:]
released.untyped_storage().resize_(0)
negative = torch.tensor([1 + 2j]).conj().imag


def change():
    few.add_(0.5)
    few[1, 1] = float("nan")
    return few


def train():
    loss = torch.tensor(0.5)
    loss -= 0.25
    return trained(loss)


def trained(loss):
    return loss.detach()


def wait():
    scalar = torch.tensor(0.25)
    parameter = torch.nn.Parameter(torch.tensor(2.0))
    half = torch.tensor(-1.5, dtype=torch.float16)  # noqa: F841
    item = torch.arange(5)[3]  # noqa: F841
    loss = (parameter * scalar).sum()
    with torch.inference_mode():
        inferred = torch.tensor([True])[0]  # noqa: F841
    opposite = torch.tensor(1 + 2j).conj().imag  # noqa: F841
    nowhere = torch.tensor(1.0, device="meta")  # noqa: F841
    gone = torch.zeros(64)[40]
    gone.untyped_storage().resize_(0)
    print("waiting", flush=True)
    sys.stdin.readline()
    loss = loss + 1
    return loss


if __name__ == "__main__":
    print("ready", flush=True)
    wait()
    for _ in sys.stdin:
        change()
        train()
        print("changed", flush=True)
