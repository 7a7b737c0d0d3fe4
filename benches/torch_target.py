"""Trains small models with and without somebody looking, taking turns, and prints nanoseconds of a step as JSON.

`torch_target.py ours` compares what this project records, and hooks of torch; `older` what the older probing does.
"""

import contextlib
import json
import operator
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn

ROUNDS = 80
STEPS = {"mlp": 9, "transformer": 5}

torch.set_num_threads(1)
torch.manual_seed(0)


def mlp() -> tuple[nn.Module, torch.Tensor]:
    layers = [layer for _ in range(4) for layer in (nn.Linear(128, 128), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(128, 1)), torch.randn(64, 128)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(8, 32, 64)


MODELS = {"mlp": mlp, "transformer": transformer}


@contextlib.contextmanager
def plain(_: nn.Module, __: object) -> Iterator[None]:
    yield


@contextlib.contextmanager
def ours(_: nn.Module, __: object) -> Iterator[None]:
    import probing

    probing.torch.enable()
    try:
        yield
    finally:
        probing.torch.disable()


@contextlib.contextmanager
def told(model: nn.Module, _: object) -> Iterator[None]:
    """What it takes to be told of the same, by functions in C that do nothing: less is not possible that way."""
    if sys.version_info < (3, 12):
        yield
        return
    monitoring = sys.monitoring
    events = monitoring.events
    step = next(code for code in torch.optim.Optimizer.profile_hook_step.__code__.co_consts if hasattr(code, "co_code"))
    codes = [nn.Module._call_impl.__code__, torch.autograd.graph._engine_run_backward.__code__, step]
    monitoring.use_tool_id(monitoring.PROFILER_ID, "told")
    callbacks: dict[int, Callable[..., object]] = {events.PY_START: operator.is_, events.PY_RETURN: slice}
    for event, callback in callbacks.items():
        monitoring.register_callback(monitoring.PROFILER_ID, event, callback)
    for code in codes:
        monitoring.set_local_events(monitoring.PROFILER_ID, code, events.PY_START | events.PY_RETURN)
    firsts = [next(part.parameters(recurse=False), None) for part in model.modules()]
    nothing = {}.get
    handles = [first.register_post_accumulate_grad_hook(nothing) for first in firsts if first is not None]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for code in codes:
            monitoring.set_local_events(monitoring.PROFILER_ID, code, 0)
        monitoring.free_tool_id(monitoring.PROFILER_ID)


@contextlib.contextmanager
def tensors(_: nn.Module, __: object) -> Iterator[None]:
    """Statistics of all parameters and gradients in every step."""
    import probing

    probing.torch.enable(tensors=1)
    try:
        yield
    finally:
        probing.torch.disable()


@contextlib.contextmanager
def nan(_: nn.Module, __: object) -> Iterator[None]:
    import probing

    probing.torch.enable(nan=True)
    try:
        yield
    finally:
        probing.torch.disable()


@contextlib.contextmanager
def hooks(model: nn.Module, _: object) -> Iterator[None]:
    """The least that hooks in Python can do: a time before and after each module's call."""
    began: list[int] = []
    took: list[int] = []

    def before(module: nn.Module, args: object) -> None:
        began.append(time.perf_counter_ns())

    def after(module: nn.Module, args: object, result: object) -> None:
        took.append(time.perf_counter_ns() - began.pop())

    handles = [part.register_forward_pre_hook(before) for part in model.modules()]
    handles += [part.register_forward_hook(after) for part in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor) -> None:
    model(inputs).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def timed(run: Callable[[], None], steps: int) -> float:
    """The median of some steps."""
    taken = []
    for _ in range(steps):
        # Of the processor: what others do on the machine counts less. One thread does all of it.
        began = time.thread_time_ns()
        run()
        taken.append(time.thread_time_ns() - began)
    return statistics.median(taken)


Ways = dict[str, Callable[[nn.Module, torch.optim.Optimizer], contextlib.AbstractContextManager[None]]]


def compared(name: str, ways: Ways) -> dict[str, float]:
    """Nanoseconds of each way. All take turns, and each is compared with the plain one of its own round: what makes the
    machine slower for a while makes both slower."""
    model, inputs = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, looking in ways.items():
            with looking(model, optimizer):
                step(model, optimizer, inputs)
                taken[way].append(timed(lambda: step(model, optimizer, inputs), STEPS[name]))
    usual = statistics.median(taken["plain"])
    pairs = {way: zip(times, taken["plain"], strict=True) for way, times in taken.items()}
    return {way: usual * statistics.median(one / other for one, other in both) for way, both in pairs.items()}


def graph_breaks() -> dict[str, int]:
    """Of a model that is to be one graph, while it is looked at."""
    model, inputs = mlp()
    with ours(model, None):
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        for _ in range(3):
            compiled(inputs).sum().backward()
    counters = torch._dynamo.utils.counters
    return {"graphs": counters["stats"]["unique_graphs"], "breaks": len(counters["graph_break"])}


@contextlib.contextmanager
def older(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """What the older probing installs behind the first step of an optimizer."""
    from probing.profiling.torch import install_hooks, uninstall_hooks
    from probing.profiling.torch_probe import TorchProbe, TorchProbeConfig

    tracer = TorchProbe(config=TorchProbeConfig(enabled=True))
    install_hooks(model, tracer=tracer)
    install_hooks(opt=optimizer, tracer=tracer)
    try:
        yield
    finally:
        uninstall_hooks()


def main() -> None:
    if sys.argv[1] == "older":
        print(json.dumps({name: compared(name, {"plain": plain, "older": older}) for name in MODELS}))
        return
    ways: Ways = {"plain": plain, "ours": ours, "told": told, "hooks": hooks, "tensors": tensors, "nan": nan}
    found: dict[str, object] = {name: compared(name, ways) for name in MODELS}
    print(json.dumps({**found, "compiled": graph_breaks()}))


if __name__ == "__main__":
    main()
