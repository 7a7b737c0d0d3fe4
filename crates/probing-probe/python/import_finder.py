"""Waits for the program to import modules. Runs in the target, called by imports.rs alone."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    Arrived = Callable[[ModuleType], None]


class Finder:
    """Finds nothing itself; has whoever finds an awaited module tell when that has been loaded.

    Put before the other finders once, and never taken out: Python goes through their list by index, so a thread that
    is just asking one of them would pass over the next.
    """

    def __init__(self) -> None:
        self.awaited: dict[str, Arrived] = {}

    def wait(self, name: str, arrived: Arrived) -> None:
        """Call a function with a module when that has been imported."""
        self.awaited[name] = arrived
        if not any(finder is self for finder in sys.meta_path):
            sys.meta_path.insert(0, self)

    def forget(self, name: str) -> None:
        """Wait for a module no longer."""
        self.awaited.pop(name, None)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.awaited:
            return None
        for finder in [*sys.meta_path]:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, self)
                return spec
        return None


class Loader:
    """A loader that tells when its module is there, and is seen by nobody after that."""

    def __init__(self, loader: Any, finder: Finder) -> None:
        self.loader, self.finder = loader, finder

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        arrived = self.finder.awaited.pop(module.__spec__.name, None)
        if arrived is not None:
            # For the program the import ends a moment later; nothing of it is missing any more.
            module.__spec__._initializing = False
            arrived(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)
