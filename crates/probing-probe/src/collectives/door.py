"""What is done to torch.distributed once: its groups are hooked, those to come as well, and it may come later.

A torch without hooks of process groups has its dispatcher tell, see kernels.py.
"""

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
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Watch:
    """What was done to torch.distributed, and how it is taken back."""

    def __init__(self, torch_is_there: Callable[..., Any], group_is_there: Callable[..., Any], kernels: Any) -> None:
        self.torch_is_there, self.group_is_there = torch_is_there, group_is_there
        # Of a torch without hooks.
        self.kernels = kernels
        self.has_hooks = True
        # Groups, with what is called before and behind each operation.
        self.hooked: list[tuple[Any, Any, Any]] = []
        # Where the ranks of the newest group's job met.
        self.job: str | None = None
        self.calls_tell = False
        self.trouble: str | None = None
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
        self.has_hooks = hasattr(c10d.ProcessGroup, "register_pre_hook")
        self.know(c10d)
        original = c10d._new_process_group_helper

        def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            try:
                self.hook(c10d, made[0] if isinstance(made, tuple) else made)
            except Exception as error:  # noqa: BLE001 - the program's group must not fail by us
                self.trouble = f"a process group is not recorded: {error}"
            return made

        self.original, self.replaced = original, _new_process_group_helper
        c10d._new_process_group_helper = _new_process_group_helper
        try:
            for group in list(c10d._world.pg_map):
                self.hook(c10d, group)
        except Exception:
            self.end()
            raise

    def know(self, c10d: Any) -> None:
        from torch._C import _distributed_c10d as native

        if self.has_hooks:
            numbers = {int(value): name.lower() for name, value in native.HookOpName.__members__.items()}
            names = [numbers.get(number, "unknown") for number in range(max(numbers) + 1)]
            size = native.PreHookArgs.__basicsize__
        else:
            names, size = self.kernels.names(), 0
        logger = getattr(c10d, "_exception_logger", None)
        codes: list[Any] = []
        failure = None
        if logger is not None:
            codes = [code for code in logger.__code__.co_consts if getattr(code, "co_name", "") == "wrapper"]
            if not all(branches_when_it_fails(code) for code in codes):
                # What it calls when a function has failed by an error, and never else.
                failure = getattr(logger.__globals__.get("_get_msg_dict"), "__code__", None)
        folder = os.path.dirname(os.path.dirname(c10d.__file__)) + "/"
        self.calls_tell = self.torch_is_there(names, folder, (native.Work, size), (codes, failure))

    def hook(self, c10d: Any, group: Any) -> None:
        # What is no group of this rank's is a number.
        if not isinstance(group, c10d.ProcessGroup) or self.is_hooked(group):
            return
        if not self.has_hooks:
            self.kernels.register()
        backend, store = c10d._world.pg_map.get(group, ("", None))
        waits = backend in WAITING
        place = (group.rank(), group.size())
        self.job = meeting_place(store)
        told = self.group_is_there(group, (self.job, str(group.group_name)), place, waits)
        if told is None:
            return
        before, after = told
        self.hooked.append((group, before, after))
        if self.has_hooks:
            group.register_pre_hook(HOOK, before)

    def is_hooked(self, group: Any) -> bool:
        return any(known is group for known, _, _ in self.hooked)

    def hear_after(self, number: int) -> None:
        group, _, after = self.hooked[number]
        if self.has_hooks:
            group.register_post_hook(HOOK, after)

    def end(self) -> None:
        if self.door is not None:
            if self.door in sys.meta_path:
                sys.meta_path.remove(self.door)
            self.door = None
        c10d = sys.modules.get(MODULE)
        if self.has_hooks:
            for group, _, _ in self.hooked:
                group.unregister_pre_hook(HOOK)
                group.unregister_post_hook(HOOK)
        self.hooked = []
        if self.original is not None and c10d._new_process_group_helper is self.replaced:
            c10d._new_process_group_helper = self.original
        self.original = None

    def newest_job(self) -> str | None:
        return self.job

    def note(self) -> str | None:
        if self.trouble is None and not self.hooked:
            return "no process group yet: operations are recorded as soon as there is one"
        return self.trouble


def meeting_place(store: Any) -> str | None:
    """Where the ranks of a job met: what tells it from others, whose groups have the same names."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    # A program can have a store of its own kind.
    host, port, path = (getattr(store, name, None) for name in ("host", "port", "path"))
    if port is None:
        return None if path is None else str(path)
    # Every machine has such an address.
    return f"{os.uname().nodename if host in LOOPBACK else host}:{port}"


def branches_when_it_fails(code: Any) -> bool:
    """Whether code goes one of two ways in what handles an exception, and nowhere else."""
    import dis

    if sys.version_info < (3, 12):
        return False
    handlers = [entry.target for entry in dis._parse_exception_table(code)]
    ways = [step.offset for step in dis.get_instructions(code) if step.opcode in dis.hasjrel and "IF" in step.opname]
    return bool(handlers and ways) and min(ways) >= min(handlers)


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
