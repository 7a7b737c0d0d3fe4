"""Loads the native module by its path and starts the probe, leaving the program's names and paths as they are.

For programs in whose environment the package is not installed: imported by ``sitecustomize`` beside it, and sent as
source text into processes that nobody prepared.
"""

import sys


def start(path: str, start_ticks: int | None = None) -> None:
    """Start the probe in the file ``path``. A process that has no ``/proc`` is given its start time."""
    module = sys.modules.get("probing._probe")
    if module is None:
        # importlib.machinery's, from where they are loaded already: the target waits for every import of ours.
        from _frozen_importlib import ModuleSpec
        from _frozen_importlib_external import ExtensionFileLoader
        from time import sleep

        loader = ExtensionFileLoader("probing._probe", path)
        # Each sleep, long enough for a thread to wake up, lets the program's go on: none waits for the whole of this.
        sleep(1e-4)
        module = loader.create_module(ModuleSpec("probing._probe", loader, origin=path))
        sleep(1e-4)
        loader.exec_module(module)
        sys.modules["probing._probe"] = module
        sleep(1e-4)
    module.start(start_ticks)
