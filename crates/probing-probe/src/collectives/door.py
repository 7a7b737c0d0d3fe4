"""What is done to torch.distributed once: its groups are hooked, those to come as well, and it may come later."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MODULE = "torch.distributed.distributed_c10d"
# Unlikely to be anybody else's.
HOOK = 7_770_001


class Watch:
    """What was done to torch.distributed, and how it is taken back."""

    def __init__(self, before: Callable[..., Any], after: Callable[..., Any], returned: Callable[..., Any]) -> None:
        self.before, self.after, self.returned = before, after, returned
        self.hooked: list[Any] = []
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
        original = self.original = c10d._new_process_group_helper
        if not hasattr(c10d.ProcessGroup, "register_pre_hook"):
            raise RuntimeError("this torch has no hooks of process groups (2.15 has)")

        def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            self.hook(made[0] if isinstance(made, tuple) else made)
            return made

        self.replaced = _new_process_group_helper
        c10d._new_process_group_helper = _new_process_group_helper
        for group in list(c10d._world.pg_map):
            self.hook(group)
        logger = getattr(c10d, "_exception_logger", None)
        if logger is not None:
            codes = [code for code in logger.__code__.co_consts if getattr(code, "co_name", "") == "wrapper"]
            self.returned(codes)

    def hook(self, group: Any) -> None:
        # What is no group of this rank's is a number.
        if not hasattr(group, "register_pre_hook") or any(group is known for known, _ in self.hooked):
            return
        names = {int(value): name.lower() for name, value in operations().items()}
        about = (str(group.group_name), group.rank(), group.size(), names)
        group.register_pre_hook(HOOK, self.before(group._get_sequence_number_for_group, about))
        group.register_post_hook(HOOK, self.after(about))
        self.hooked.append((group, about))

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

    def groups(self) -> int:
        return len(self.hooked)


def operations() -> Any:
    from torch._C._distributed_c10d import HookOpName

    return HookOpName.__members__


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
