"""What is done to torch.distributed once: its groups are hooked, those to come as well, and it may come later.

A torch without hooks of process groups has its dispatcher tell, see kernels.py.
"""

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
    """What was done to torch.distributed.

    Hooks of a group stay as long as it lives and are silent while nothing is recorded: a thread of torch's may wait for
    the GIL inside of one, and to unregister it would free it there.
    """

    def __init__(
        self,
        torch_is_there: Callable[..., Any],
        group_is_there: Callable[..., Any],
        kernels: Any,
        imports: tuple[Callable[..., None], Callable[..., None]],
        job_of: Callable[[Any, Any], str | None],
        aside: Callable[..., str | None],
        generation: int,
    ) -> None:
        self.torch_is_there, self.group_is_there = torch_is_there, group_is_there
        self.job_of = job_of
        # Calls a function of ours in the middle of the program, which gets nothing of what that raises.
        self.aside = aside
        # Of a torch without hooks.
        self.kernels = kernels
        self.wait, self.forget = imports
        # A child of a fork leaves its parent's hooks where they are.
        self.number = HOOK + generation
        self.is_on = False
        self.has_hooks = True
        self.has_groups = False
        # Where the ranks of the newest group's job met.
        self.job: str | None = None
        self.calls_tell = False
        self.trouble: str | None = None
        self.original: Any = None
        self.replaced: Any = None

    def begin(self) -> None:
        self.is_on, self.has_groups, self.trouble = True, False, None
        # First: it may be imported meanwhile.
        self.wait(MODULE, self.arrived)
        c10d = sys.modules.get(MODULE)
        spec = getattr(c10d, "__spec__", None)
        if c10d is not None and not getattr(spec, "_initializing", False):
            self.forget(MODULE)
            self.attach(c10d)

    def arrived(self, c10d: Any) -> None:
        trouble = self.aside(self.attach, c10d)
        if trouble is not None:
            self.trouble = f"torch.distributed is not recorded: {trouble}"

    def attach(self, c10d: Any) -> None:
        if c10d._new_process_group_helper is self.replaced:
            return
        self.has_hooks = hasattr(c10d.ProcessGroup, "register_pre_hook")
        self.know(c10d)
        if c10d._new_process_group_helper is not self.original:
            self.original = c10d._new_process_group_helper
            self.replaced = self.around(c10d, self.original)
        c10d._new_process_group_helper = self.replaced
        try:
            for group in list(c10d._world.pg_map):
                self.hook(c10d, group)
        except Exception:
            self.end()
            raise

    def around(self, c10d: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        """Have groups that are made later hooked."""

        def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if self.is_on:
                trouble = self.aside(self.hook, c10d, made[0] if isinstance(made, tuple) else made)
                if trouble is not None:
                    self.trouble = f"a process group is not recorded: {trouble}"
            return made

        return _new_process_group_helper

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
        if not isinstance(group, c10d.ProcessGroup):
            return
        if not self.has_hooks:
            self.kernels.register()
        backend, _ = c10d._world.pg_map.get(group, ("", None))
        waits = backend in WAITING
        place = (group.rank(), group.size())
        self.job = self.job_of(c10d, group)
        self.has_groups = True
        before = self.group_is_there(group, (self.job, str(group.group_name)), place, waits)
        # One that has its hooks keeps them.
        if before is not None and self.has_hooks:
            group.register_pre_hook(self.number, before)

    def hear_after(self, group: Any, after: Callable[..., None]) -> None:
        if self.has_hooks:
            group.register_post_hook(self.number, after)

    def end(self) -> None:
        self.is_on = False
        self.forget(MODULE)
        c10d = sys.modules.get(MODULE)
        if c10d is not None and c10d._new_process_group_helper is self.replaced:
            c10d._new_process_group_helper = self.original  # type: ignore[attr-defined]

    def newest_job(self) -> str | None:
        return self.job

    def note(self) -> str | None:
        if self.trouble is None and not self.has_groups:
            return "no process group yet: operations are recorded as soon as there is one"
        return self.trouble


def branches_when_it_fails(code: Any) -> bool:
    """Whether code goes one of two ways in what handles an exception, and nowhere else."""
    import dis

    if sys.version_info < (3, 12):
        return False
    handlers = [entry.target for entry in dis._parse_exception_table(code)]  # type: ignore[attr-defined]
    ways = [step.offset for step in dis.get_instructions(code) if step.opcode in dis.hasjrel and "IF" in step.opname]
    return bool(handlers and ways) and min(ways) >= min(handlers)
