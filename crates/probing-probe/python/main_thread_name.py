"""Imports ``threading`` from a thread that is not the main one, and tells it which one is."""

import _thread
import os
import sys
import threading


def name_main_thread() -> None:
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


name_main_thread()
del name_main_thread
