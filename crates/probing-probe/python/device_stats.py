"""Looks at tensors by operations of torch, without waiting for a GPU. Runs in the target, called by elsewhere.rs."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def begin(tensor: Any) -> tuple[str, list[int], str, int, Any]:
    """Give kind, shape, device and count of a tensor's numbers, and what ``end`` makes of it."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with torch.no_grad(), torch._C.DisableTorchFunction(), _disable_current_modes():
        about = (str(tensor.dtype).removeprefix("torch."), list(tensor.shape), str(tensor.device), tensor.numel())
        if tensor.device.type == "meta" or tensor.layout != torch.strided or tensor.is_nested:
            raise ValueError("it has no numbers")
        on_gpu = tensor.device.type == "cuda"
        if on_gpu and torch.cuda.is_current_stream_capturing():
            raise ValueError("a graph is being captured")
        numbers = tensor.detach()
        numbers = numbers.abs() if numbers.is_complex() else numbers
        # A GPU is quicker with what it has; elsewhere digits are cheap.
        numbers = numbers.float() if on_gpu and numbers.dtype != torch.float64 else numbers.double()
        finite = torch.isfinite(numbers)
        count = finite.sum()
        kept = torch.where(finite, numbers, 0)
        mean = kept.sum() / count
        away = torch.where(finite, numbers - mean, 0)
        told = torch.stack(
            [
                count.to(numbers.dtype),
                torch.isnan(numbers).sum().to(numbers.dtype),
                (numbers == 0).sum().to(numbers.dtype),
                torch.where(finite, numbers, torch.inf).amin() if numbers.numel() else mean,
                torch.where(finite, numbers, -torch.inf).amax() if numbers.numel() else mean,
                mean,
                (away * away).sum() / (count - 1),
                (kept * kept).sum(),
            ]
        )
        if not on_gpu:
            return (*about, told)
        there = torch.empty(told.shape, dtype=told.dtype, pin_memory=True)
        there.copy_(told, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        return (*about, (there, event))


def end(begun: Any) -> list[float] | None:
    """Give the numbers; None while they are on their way."""
    if isinstance(begun, tuple):
        begun, event = begun
        if not event.query():
            return None
    numbers: list[float] = begun.double().tolist()
    return numbers
