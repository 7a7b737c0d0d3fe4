"""Waits in C that was called by Python that was called by C, three times over. Its argument is native.c, compiled."""

import ctypes
import os
import select
import sys
import threading
import time

library = ctypes.CDLL(sys.argv[1])
call_back = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
compare_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
ends, never = os.pipe()
locked = threading.Lock()
locked.acquire()


@call_back
def descend(level):
    if level == 0:
        return library.wait_here(ends)  # @waits
    return library.alternate(descend, level - 1)  # @calls


def alternations():
    library.alternate(descend, 2)  # @first


@compare_type
def compare(_one, _other):
    time.sleep(1000)  # @compares
    return 0


def sort():
    ctypes.CDLL(None).qsort(ctypes.create_string_buffer(2), 2, 1, compare)  # @sorts


def sleep():
    time.sleep(1000)  # @sleeps


def lock():
    with locked:  # @locks
        pass


def wait_in_epoll():
    select.epoll().poll(1000)  # @polls


def spin():
    number = 0
    while True:  # @spins
        number += 1  # @adds


def nest():
    """Python in Python, out of C only once: a class body, a generator and a comprehension lie between."""

    def numbers():
        yield library.wait_here(ends)  # @yields

    class Body:
        found = [number for number in numbers()]  # @comprehends

    return Body


for function in (alternations, sort, sleep, lock, wait_in_epoll, nest):
    threading.Thread(target=function, name=function.__name__, daemon=True).start()
if "spin" in sys.argv:
    threading.Thread(target=spin, name="spin", daemon=True).start()
if "sleepers" in sys.argv:
    library.start_sleepers(ends)
print("ready", flush=True)
for line in sys.stdin:  # @main
    if line == "interruptions\n":
        print(*[library.interruptions(which) for which in range(3)], flush=True)
