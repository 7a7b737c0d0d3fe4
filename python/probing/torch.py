"""What a training with torch does, recorded by the program itself: ``probing.torch.enable()``.

``probing -t PID torch on`` and ``PROBING_TORCH=1`` do the same from outside. Rows are in ``python.torch_trace`` and
``python.tensors``; ``docs/torch.md`` says what is in them and what they cost.
"""

import json
from collections.abc import Iterable
from typing import Any

from probing import _probe

__all__ = ["disable", "enable", "status"]


def enable(
    *,
    rate: float = 1.0,
    memory: str = "step",
    tensors: int | None = None,
    of: Iterable[str] = ("parameters", "gradients"),
    only: Iterable[str] = (),
    nan: bool = False,
) -> dict[str, Any]:
    """Record modules, backward passes and steps of optimizers; also works before torch is imported.

    ``rate``: the share of steps that are recorded. ``memory``: read the memory of a GPU once in each ``"step"``, after
    each ``"module"``, or ``"never"``. ``tensors``: every N steps, statistics ``of`` parameters, gradients and
    activations, those whose names are like one of ``only`` (``*`` is anything). ``nan``: look for NaN and Inf
    first. Returns what ``status()`` returns. Raises RuntimeError, with a hint, where there is no torch.
    """
    if not 0 < rate <= 1:
        raise ValueError(f"rate must be more than 0 and at most 1, not {rate}")
    asked: dict[str, Any] = {"ask": "on", "trace": {"every": round(1 / rate), "memory": memory}, "nan": nan}
    if tensors is not None:
        asked["tensors"] = {"every": tensors, "kinds": list(of), "only": list(only)}
    return _ask(asked)


def disable() -> dict[str, Any]:
    """Stop recording and remove all hooks from torch."""
    return _ask({"ask": "off"})


def status() -> dict[str, Any]:
    """Return what is recorded, the known models and the current step."""
    return _ask({"ask": "status"})


def _ask(asked: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(_probe.torch(json.dumps(asked)))
    return answer
