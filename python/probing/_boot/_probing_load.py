"""Loads the native module by its path and starts the probe, leaving the program's names and paths as they are.

For programs in whose environment the package is not installed: imported by ``sitecustomize`` beside it, and sent as
source text into processes that nobody prepared.
"""

import sys
from collections.abc import Collection


def start(path: str, blocked_signals: Collection[int] | None = None) -> None:
    """Start the probe in the file ``path``. Evaluated code blocks ``blocked_signals``, or what the caller blocks."""
    module = sys.modules.get("probing._probe")
    if module is None:
        from importlib.machinery import ExtensionFileLoader, ModuleSpec

        loader = ExtensionFileLoader("probing._probe", path)
        module = loader.create_module(ModuleSpec("probing._probe", loader, origin=path))
        loader.exec_module(module)
        sys.modules["probing._probe"] = module
    module.start(None if blocked_signals is None else sorted(blocked_signals))
