"""Starts the probe in a program that ``probing run`` started, whatever its environment has installed.

This folder is in front of ``PYTHONPATH``, so Python imports this file at start-up, in children, too. It loads the
native module by its path, so that ``sys.path`` stays the program's, then hands over to the ``sitecustomize`` that
Python would have imported without it. It must run, and do nothing, on Pythons that the probe does not support.
"""

import os
import sys


def _start() -> None:
    if sys.version_info < (3, 10) or "t" in getattr(sys, "abiflags", ""):
        return
    if (os.environ.get("PROBING") or "0") == "0" or "probing._probe" in sys.modules:
        return
    from importlib.machinery import ExtensionFileLoader, ModuleSpec

    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_probe.abi3.so")
    try:
        loader = ExtensionFileLoader("probing._probe", path)
        module = loader.create_module(ModuleSpec("probing._probe", loader, origin=path))
        loader.exec_module(module)
        sys.modules["probing._probe"] = module
        module.start()
    except (ImportError, OSError):
        pass


def _step_aside() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != folder]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


_start()
_step_aside()
