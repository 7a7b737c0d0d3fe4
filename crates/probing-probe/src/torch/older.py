"""Has torch tell of its calls where Python has no ``sys.monitoring``. Runs in the target, called by library.rs."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FunctionType
    from typing import Any

NAMES = ("_probing_call_began", "_probing_call_ended", "_probing_pass_began", "_probing_pass_ended")


def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
    # While torch compiles it sees nothing but what was there before.
    if _probing_is_compiling():
        return _probing_call(self, *args, **kwargs)
    _probing_call_began(self)
    result = _probing_call(self, *args, **kwargs)
    _probing_call_ended(result)
    return result


def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
    if _probing_is_compiling():
        return _probing_pass(*args, **kwargs)
    _probing_pass_began()
    result = _probing_pass(*args, **kwargs)
    _probing_pass_ended()
    return result


def _as_torchs(code: CodeType, of: CodeType) -> CodeType:
    """Give the new code the old one's name and place: torch's compiler decides by them what it looks into."""
    return code.replace(co_filename=of.co_filename, co_name=of.co_name, co_firstlineno=of.co_firstlineno)


def swap(call: FunctionType, run: FunctionType, natives: tuple[Callable[..., Any], ...]) -> list[Any]:
    """Put our code into the places of torch's, and give what is needed to take it back."""
    from torch.compiler import is_compiling
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    began, ended = natives[4:]

    # Functions of Python, which torch's compiler can look into.
    def step_began(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            began(optimizer)

    def step_ended(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            ended(optimizer)

    function = type(swap)
    taken: list[Any] = []
    for torchs, ours, name in ((call, _call_impl, "_probing_call"), (run, _engine_run_backward, "_probing_pass")):
        before = torchs.__code__
        names = torchs.__globals__
        kept = function(before, names, torchs.__name__, torchs.__defaults__, torchs.__closure__)
        kept.__kwdefaults__ = torchs.__kwdefaults__
        names[name] = kept
        names["_probing_is_compiling"] = is_compiling
        names.update(zip(NAMES, natives[:4], strict=True))
        torchs.__code__ = _as_torchs(ours.__code__, before)
        taken.append((torchs, before))
    taken.append(register_optimizer_step_pre_hook(step_began))
    taken.append(register_optimizer_step_post_hook(step_ended))
    return taken


def take_back(taken: list[Any]) -> None:
    """Leave torch as it was. Names stay: a call that is under way still needs them."""
    for one in taken:
        if type(one) is tuple:
            one[0].__code__ = one[1]
        else:
            one.remove()
