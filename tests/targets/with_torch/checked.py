"""Checks what is recorded of torch against torch itself: the same results to the last bit, the same statistics, graphs.

Prints a line for each."""

import hashlib

import torch
from torch import nn

import probing
from probing import _probe

torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)))


def trained():
    """The losses and weights of a seeded training, as one number."""
    torch.manual_seed(3)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    seen = hashlib.sha256()
    for _ in range(6):
        for _ in range(2):
            tokens = torch.randint(0, 11, (4, 5))
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            seen.update(loss.detach().numpy().tobytes())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    for parameter in model.parameters():
        seen.update(parameter.detach().numpy().tobytes())
    seen.update(torch.get_rng_state().numpy().tobytes())
    return seen.hexdigest()


def is_same_training():
    plain = trained()
    probing.torch.enable(tensors=1, of=["parameters", "gradients", "activations"], nan=True)
    traced = trained()
    status = probing.torch.status()
    probing.torch.disable()
    print("results", plain == traced == trained(), status["step"], status["counted_by"], status["findings"])


def expected(tensor):
    numbers = tensor.double().flatten()
    finite = numbers[numbers.isfinite()]
    counts = (numbers.numel(), int(numbers.isnan().sum()), int(numbers.isinf().sum()), int((numbers == 0).sum()))
    if not finite.numel():
        return counts, None
    std = finite.std().item() if finite.numel() > 1 else None
    return counts, (finite.min().item(), finite.max().item(), finite.mean().item(), std, finite.norm().item())


def is_near(one, other):
    if one is None or other is None:
        return one is other
    return abs(one - other) <= 1e-9 * max(1, abs(one), abs(other))


def shapes(numbers):
    """Views of the same memory, in every way that they can lie."""
    yield numbers
    yield numbers.reshape(4, 6, 10)
    yield numbers.reshape(4, 6, 10).permute(2, 0, 1)
    yield numbers.reshape(4, 6, 10)[:, ::2, 1::3]
    yield numbers.reshape(24, 10).t()[3]
    yield numbers[7]
    yield numbers[:0]
    yield numbers[:1].expand(50)
    yield numbers.reshape(4, 60)[:, None, :].expand(4, 3, 60)[..., 5:]
    yield numbers.flip(0)


def are_same_statistics():
    torch.manual_seed(5)
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool]
    kinds += [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
    looked_at = wrong = 0
    for kind in kinds:
        numbers = (torch.randn(240, dtype=torch.float64) * 40).round(decimals=3) + 7
        numbers[::17] = 0
        numbers = numbers.to(kind)
        variants = [numbers]
        if kind.is_floating_point:
            odd = numbers.clone()
            odd[3], odd[10], odd[100], odd[200:] = float("nan"), float("inf"), -float("inf"), float("nan")
            tiny = torch.full((240,), torch.finfo(kind).tiny / 4, dtype=kind)
            variants += [odd, tiny, torch.full((240,), float("nan"), dtype=kind), numbers + 60000]
        for variant in variants:
            for view in shapes(variant):
                counts, finite = _probe.tensor_statistics(view)
                wanted_counts, wanted = expected(view)
                same = counts == wanted_counts and (finite is None) == (wanted is None)
                same = same and all(map(is_near, finite or (), wanted or ()))
                looked_at += 1
                wrong += not same
                if not same:
                    print("wrong", kind, tuple(view.shape), view.stride(), counts, finite, wanted_counts, wanted)
    large = torch.randn(1 << 18) + 1e4
    counts, finite = _probe.tensor_statistics(large)
    wrong += not (counts == expected(large)[0] and all(map(is_near, finite, expected(large)[1])))
    others = [torch.zeros(3, device="meta"), torch.eye(3).to_sparse(), torch.zeros(2, dtype=torch.complex64)]
    refused = sum(_probe.tensor_statistics(other) is None for other in others)
    print("statistics", looked_at, wrong, refused)


def has_no_graph_break():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    probing.torch.enable()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for _ in range(3):
        compiled(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    counters = torch._dynamo.utils.counters
    print("graphs", counters["stats"]["unique_graphs"], len(counters["graph_break"]), probing.torch.status()["step"])
    probing.torch.disable()


if __name__ == "__main__":
    is_same_training()
    are_same_statistics()
    has_no_graph_break()
