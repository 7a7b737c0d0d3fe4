"""What is done to torch.distributed once: its groups are hooked, those to come as well, and it may come later."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MODULE = "torch.distributed.distributed_c10d"
# Unlikely to be anybody else's.
HOOK = 7_770_001
# Where a call that waits returns when the operation is over, and not when a stream will wait for it.
WAITING = ("gloo", "cpu:gloo", "mpi")


class Watch:
    """What was done to torch.distributed, and how it is taken back."""

    def __init__(self, torch_is_there: Callable[..., Any], group_is_there: Callable[..., Any]) -> None:
        self.torch_is_there, self.group_is_there = torch_is_there, group_is_there
        self.hooked: list[tuple[Any, Any]] = []
        self.calls_tell = False
        self.original: Any = None
        self.replaced: Any = None
        self.door: Door | None = None

    def begin(self) -> bool:
        """Returns whether torch.distributed is there already."""
        c10d = sys.modules.get(MODULE)
        spec = getattr(c10d, "__spec__", None)
        if c10d is None or getattr(spec, "_initializing", False):
            if self.door is None:
                self.door = Door(self)
                sys.meta_path.insert(0, self.door)
            return False
        self.attach(c10d)
        return True

    def attach(self, c10d: Any) -> None:
        if self.original is not None:
            return
        if not hasattr(c10d.ProcessGroup, "register_pre_hook"):
            raise RuntimeError("this torch has no hooks of process groups (2.15 has)")
        original = self.original = c10d._new_process_group_helper
        self.know(c10d)

        def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            self.hook(c10d, made[0] if isinstance(made, tuple) else made)
            return made

        self.replaced = _new_process_group_helper
        c10d._new_process_group_helper = _new_process_group_helper
        for group in list(c10d._world.pg_map):
            self.hook(c10d, group)

    def know(self, c10d: Any) -> None:
        from torch._C._distributed_c10d import HookOpName, PreHookArgs, Work

        numbers = {int(value): name.lower() for name, value in HookOpName.__members__.items()}
        names = [numbers.get(number, "unknown") for number in range(max(numbers) + 1)]
        logger = getattr(c10d, "_exception_logger", None)
        codes: list[Any] = []
        failure = None
        if logger is not None:
            codes = [code for code in logger.__code__.co_consts if getattr(code, "co_name", "") == "wrapper"]
            # What it calls when a function has failed, and never else.
            failure = getattr(logger.__globals__.get("_get_msg_dict"), "__code__", None)
        folder = os.path.dirname(os.path.dirname(c10d.__file__)) + "/"
        self.calls_tell = self.torch_is_there(names, folder, (Work, PreHookArgs.__basicsize__), (codes, failure))

    def hook(self, c10d: Any, group: Any) -> None:
        # What is no group of this rank's is a number.
        if not hasattr(group, "register_pre_hook") or any(group is known for known, _ in self.hooked):
            return
        backend = c10d._world.pg_map.get(group, ("",))[0]
        returns_when_over = self.calls_tell and backend in WAITING
        place = (group.rank(), group.size())
        sequence = group._get_sequence_number_for_group
        told = self.group_is_there(str(group.group_name), place, returns_when_over, sequence)
        if told is None:
            return
        before, after = told
        self.hooked.append((group, after))
        group.register_pre_hook(HOOK, before)

    def hear_after(self, number: int) -> None:
        group, after = self.hooked[number]
        group.register_post_hook(HOOK, after)

    def end(self) -> None:
        if self.door is not None:
            if self.door in sys.meta_path:
                sys.meta_path.remove(self.door)
            self.door = None
        for group, _ in self.hooked:
            group.unregister_pre_hook(HOOK)
            group.unregister_post_hook(HOOK)
        self.hooked = []
        c10d = sys.modules.get(MODULE)
        if self.original is not None and c10d._new_process_group_helper is self.replaced:
            c10d._new_process_group_helper = self.original
        self.original = None

    def note(self) -> str | None:
        if not self.hooked:
            return "no process group yet: operations are recorded as soon as there is one"
        return None


class Door:
    """Stands before the finders of modules and waits for one."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != MODULE:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self.watch.door = None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = Then(spec.loader, self.watch)
                return spec
        return None


class Then:
    """A loader that does something when its module is there, and is seen by nobody after that."""

    def __init__(self, loader: Any, watch: Watch) -> None:
        self.loader, self.watch = loader, watch

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        try:
            self.watch.attach(module)
        except Exception:  # noqa: BLE001 - the program's import must not fail by us; `collectives` says that it is off
            self.watch.original = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)
