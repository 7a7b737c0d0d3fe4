"""Has torch tell of its calls where Python has no ``sys.monitoring``. Runs in the target, called by library.rs."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FunctionType
    from typing import Any

    # Torch's own functions and ours, by the names that this code has in torch's modules.
    _probing_call: Any
    _probing_pass: Any
    _probing_is_compiling: Callable[[], bool]
    _probing_call_began: Callable[[object], None]
    _probing_call_ended: Callable[[object], None]
    _probing_pass_began: Callable[[], None]
    _probing_pass_ended: Callable[[], None]

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


# Hooks of every optimizer's step. They are set once and stay, silent while nothing is recorded: torch goes through a
# dictionary of them, and a training thread that is just doing so would fail if it changed.
_is_on = False
_hooks: list[tuple[Any, int, Callable[..., None]]] = []


def optimizer_hooks(natives: tuple[Callable[..., Any], ...]) -> list[tuple[Any, int, Callable[..., None]]]:
    """Tell which dictionaries of torch's are still to get which hook, by which number."""
    if not _hooks:
        _hooks.extend(_new_hooks(natives))
    return [(hooks, number, hook) for hooks, number, hook in _hooks if number not in hooks]


def _new_hooks(natives: tuple[Callable[..., Any], ...]) -> list[tuple[Any, int, Callable[..., None]]]:
    from torch.compiler import is_compiling
    from torch.optim import optimizer as optimizers
    from torch.utils.hooks import RemovableHandle

    began, ended = natives[4:]

    # Functions of Python, which torch's compiler can look into.
    def step_began(optimizer: Any, args: Any, kwargs: Any) -> None:
        if _is_on and not is_compiling():
            began(optimizer)

    def step_ended(optimizer: Any, args: Any, kwargs: Any) -> None:
        if _is_on and not is_compiling():
            ended(optimizer)

    before, after = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks
    return [(hooks, RemovableHandle(hooks).id, hook) for hooks, hook in ((before, step_began), (after, step_ended))]


def swap(call: FunctionType, run: FunctionType, natives: tuple[Callable[..., Any], ...]) -> list[Any]:
    """Put our code into the places of torch's, and give what is needed to take it back."""
    global _is_on
    from torch.compiler import is_compiling

    function: Any = type(swap)
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
    _is_on = True
    return taken


def take_back(taken: list[Any]) -> None:
    """Leave torch's functions as they were. Names stay: a call that is under way still needs them."""
    global _is_on
    _is_on = False
    for torchs, before in taken:
        torchs.__code__ = before
