"""Has torch tell of operations where it has no hooks of process groups, before 2.14. Called by door.py in the target.

Every operation of a group, those that C++ asks for included, passes torch's dispatcher on its way to the backend.
There, before the backend's own, is a place for a function that these operations have none in: ours tells, and hands on
what it was given. Tensors and works stay what they are.

It is put there once and stays. Threads of C++ look into the dispatcher's table without a lock: a place that is being
filled they do not see before it is, but they could meet one that is being emptied. While nothing is recorded, what is
there hands on and does nothing else.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NAMESPACE = "c10d"
PLACE = "BackendSelect"
GROUP = "process_group"
# What operations call their tensors: those that are taken, then those that are given.
TENSORS = (
    *("tensors", "input", "input_tensor", "input_tensors", "input_list", "inputs"),
    *("output", "output_tensor", "output_tensors", "output_lists", "outputs"),
)
# The same of the rank that it comes from or goes to.
ROOT = ("root_rank", "dst", "src")
# What else an operation is called here, as hooks call it.
NAMES = {"gather_into_tensor": "gather", "recv_any_source": "recv"}


class Kernels:
    """One for each operation, once in a process."""

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self.kernel = kernel
        # Held for as long as the process lives.
        self.library: Any = None

    def names(self) -> list[str]:
        """Names of the operations, by their numbers."""
        names = [name.strip("_") for name in operations()]
        return [NAMES.get(name, name) for name in names]

    def register(self) -> None:
        """Begin to tell. Not while torch is being imported."""
        if self.library is not None:
            return
        import torch
        from torch._C._distributed_c10d import ProcessGroup, Work

        if not hasattr(ProcessGroup, "unbox") or "with_keyset" not in torch.library.Library.impl.__code__.co_varnames:
            raise RuntimeError(f"torch {torch.__version__} does not report operations; 2.4 and newer do")
        behind = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, PLACE))
        unbox = (ProcessGroup.unbox, Work.unbox)
        self.library = library = torch.library.Library(NAMESPACE, "IMPL")
        for number, (name, schema) in enumerate(operations().items()):
            overload = getattr(getattr(torch.ops, NAMESPACE), name).default
            hand_on = (overload._handle.redispatch_boxed, behind)
            library.impl(name, self.kernel(number, places(schema), hand_on, unbox), PLACE, with_keyset=True)


def operations() -> dict[str, Any]:
    """All that a group can be asked for and that gives a work, with what they take."""
    import torch

    prefix = NAMESPACE + "::"
    names = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith(prefix))
    schemas = {name.removeprefix(prefix): torch._C._get_schema(name, "") for name in names if "." not in name}
    return {name: schema for name, schema in schemas.items() if gives_work(schema)}


def gives_work(schema: Any) -> bool:
    is_of_group = any(argument.name == GROUP for argument in schema.arguments)
    return is_of_group and bool(schema.returns) and str(schema.returns[-1].type).endswith("Work")


def places(schema: Any) -> dict[str, Any]:
    """Where the arguments are that are looked at. Not all operations have a root, or say whether nobody waits."""
    names = [argument.name for argument in schema.arguments]

    def found(*any_of: str) -> list[int]:
        return [names.index(name) for name in any_of if name in names]

    return {
        "group": names.index(GROUP),
        "tensors": found(*TENSORS),
        "root": next(iter(found(*ROOT)), None),
        "is_async": next(iter(found("async_op", "asyncOp")), None),
    }
