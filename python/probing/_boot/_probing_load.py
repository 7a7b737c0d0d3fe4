"""Loads the native module by its path and starts the probe, leaving the program's names and paths as they are.

For programs in whose environment the package is not installed: imported by ``sitecustomize`` beside it, and sent as
source text into processes that nobody prepared.
"""

import sys


def start(path: str) -> None:
    """Start the probe in the file ``path``."""
    module = sys.modules.get("probing._probe")
    if module is None:
        # importlib.machinery's, from where they are loaded already: the target waits for every import of ours.
        from _frozen_importlib import ModuleSpec
        from _frozen_importlib_external import ExtensionFileLoader

        loader = ExtensionFileLoader("probing._probe", path)
        module = loader.create_module(ModuleSpec("probing._probe", loader, origin=path))
        loader.exec_module(module)
        sys.modules["probing._probe"] = module
    module.start()


def import_threading() -> None:
    """Import ``threading`` from a thread that is not the main one, so that it knows which one is.

    Before 3.13 it takes the thread that imports it first for the main thread, and complains at the end of the program
    when that thread is gone. A program that has not imported it may do so in evaluated code.
    """
    if sys.version_info >= (3, 13) or "threading" in sys.modules:
        return
    import _thread
    import os
    import threading

    # The interpreter lists its threads with the newest first; the main thread is its oldest.
    main_ident = list(sys._current_frames())[-1]
    main = threading.main_thread()
    if main.ident in (None, main_ident):
        return
    lock = _thread.allocate_lock()
    lock.acquire()
    names = vars(threading)
    names["_active"].pop(main.ident)
    names["_active"][main_ident] = main
    names["_shutdown_locks"].discard(vars(main)["_tstate_lock"])
    vars(main).update(_ident=main_ident, _native_id=os.getpid(), _tstate_lock=lock)
