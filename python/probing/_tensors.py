"""Tensors that a program has hooked: every change in place is a row of ``python.variables``."""

import json
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from probing import _probe

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TensorHook", "hook_tensor"]

# Looked into by the probe, by this name.
hooked: dict[str, Any] = {}


class TensorHook:
    """A hooked tensor, until ``remove()`` or the end of a ``with``. It stays alive until then.

    ``tensor`` is the one to use from then on: the given one, or, by ``"torch_function"``, one over the same memory.
    """

    __slots__ = ("_point", "name", "tensor")

    def __init__(self, tensor: "Tensor", name: str, point: int | None) -> None:
        self.tensor = tensor
        self.name = name
        self._point = point

    def remove(self) -> None:
        """Look at it no longer."""
        point, self._point = self._point, None
        if point is not None:
            _probe.disarm(point)
        hooked.pop(self.name, None)

    def __enter__(self) -> "TensorHook":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


def hook_tensor(tensor: "Tensor", *, name: str, by: str = "version") -> TensorHook:
    """Record every change in place of a tensor: its numbers before and after, the operation, and where in the code.

    By ``"version"`` the tensor stays what it is, and whoever makes the change is seen: the program, an optimizer, a
    library. It is looked at between lines of Python, which costs about 1 µs for each line that any thread runs (before
    Python 3.12 code runs 2 to 7 times slower); what one line does to it is one row.

    By ``"torch_function"`` each operation on the hook's ``tensor``, of a subclass, is recorded: exact, also where
    several share a line, but not for changes through other names of the memory. See docs/torch.md for the cost.
    """
    if not name or set(name) & set("'\\\n"):
        raise ValueError(f"not a name for a tensor: {name!r}")
    if name in hooked:
        raise ValueError(f"a tensor with this name is hooked already: {name}\nhint: remove() that hook first")
    if by not in ("version", "torch_function"):
        raise ValueError(f"not a way to hook a tensor: {by}\nhint: one of: version, torch_function")
    if not hasattr(type(tensor), "_version"):
        raise TypeError(f"not a tensor of torch: one of type {type(tensor).__qualname__}")
    if by == "torch_function":
        hooked[name] = traced = _traced(tensor, name)
        return TensorHook(traced, name, None)
    hooked[name] = tensor
    place = {"on": "value", "path": f"{__name__}.hooked['{name}']"}
    asked = {"place": place, "action": {"do": "count"}, "stats": True, "ttl_millis": 0}
    try:
        point: int = json.loads(_probe.arm(json.dumps(asked)))["point"]
    except BaseException:
        del hooked[name]
        raise
    return TensorHook(tensor, name, point)


def _traced(tensor: "Tensor", name: str) -> "Tensor":
    import torch

    class TracedTensor(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(cls, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
            kwargs = kwargs or {}
            with torch._C.DisableTorchFunctionSubclass():
                mine = next((one for one in (*args, *kwargs.values()) if type(one) is cls), None)
                if mine is None or name not in hooked:
                    return func(*args, **kwargs)
                called = getattr(func, "__name__", "")
                before, plain = mine._version, mine.as_subclass(torch.Tensor)
                changes = called.endswith("_") or "out" in kwargs
                old = _probe.tensor_in_words(plain) if changes else None
                result = func(*args, **kwargs)
                if mine._version != before:
                    frame = sys._getframe(1)
                    where = (frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)
                    _probe.tensor_changed(name, called, old, _probe.tensor_in_words(plain), where)
            return result

    return tensor.detach().as_subclass(TracedTensor)
