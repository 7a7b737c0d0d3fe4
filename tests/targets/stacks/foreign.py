"""Threads that Python did not start: one from C, one without `threading`; both wait for the end of the input."""

import _thread
import ctypes
import sys

held = _thread.allocate_lock()
held.acquire()
arrived = _thread.allocate_lock()
arrived.acquire()


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def from_c(argument):
    kept = argument
    arrived.release()
    held.acquire()  # @c
    return kept


def bare(argument):
    arrived.release()
    held.acquire()  # @bare


libc = ctypes.CDLL(None)
thread = ctypes.c_ulong()
libc.pthread_create(ctypes.byref(thread), None, from_c, ctypes.c_void_p(77))
arrived.acquire()
_thread.start_new_thread(bare, ("given",))
arrived.acquire()
print("ready", flush=True)
sys.stdin.readline()
