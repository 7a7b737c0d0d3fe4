"""Waits for the program to import torch. Runs in the target, called by arrival.rs alone."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


class _Finder:
    """Finds nothing itself; has the one who finds torch tell when it has been loaded."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self.arrived = arrived

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: Any) -> None:
        load = getattr(spec.loader, "exec_module", None)
        if load is None:
            return

        def exec_module(module: ModuleType) -> None:
            del spec.loader.exec_module
            load(module)
            # For the program the import ends a moment later; nothing of it is missing any more.
            module.__spec__._initializing = False  # type: ignore[union-attr]
            forget()
            self.arrived()

        spec.loader.exec_module = exec_module


def may_come() -> bool:
    """Say whether torch can be found."""
    from importlib.util import find_spec

    try:
        return find_spec("torch") is not None
    except (ImportError, ValueError):
        # It is being imported at this moment, or is an odd one.
        return "torch" in sys.modules


def wait(arrived: Callable[[], None]) -> None:
    """Call a function when torch has been imported."""
    forget()
    sys.meta_path.insert(0, _Finder(arrived))  # type: ignore[arg-type]


def forget() -> None:
    """Wait no longer."""
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if type(finder).__name__ != "_Finder" or finder.__module__ != __name__
    ]
