"""Writes to bytes of its own as each line of its standard input says, and stays where it wrote until the next line."""

import ctypes
import os
import signal
import sys
import threading

data = ctypes.create_string_buffer(64)
array = bytearray(64)


def wait():
    sys.stdin.readline()


def by_library(value):
    ctypes.memset(data, value, 4)
    wait()  # @library


def by_python(value):
    array[8] = value
    wait()  # @python


def by_kernel():
    with open("/dev/zero", "rb", buffering=0) as zeros:
        zeros.readinto(array)
    wait()  # @kernel


def often(count):
    for number in range(count):
        array[8] = number % 256


def stray_trap():
    """What the kernel makes of a debug exception whose cause was lost: SIGTRAP with the code of a trap."""
    info = (ctypes.c_int * 32)(signal.SIGTRAP, 0, 1)
    rt_tgsigqueueinfo = {"x86_64": 297, "aarch64": 240}[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    sent = libc.syscall(rt_tgsigqueueinfo, os.getpid(), threading.get_native_id(), signal.SIGTRAP, ctypes.byref(info))
    assert sent == 0, os.strerror(ctypes.get_errno())


def trapped_reader():
    """What it reads comes from its own handler of SIGTRAP."""
    global ends
    ends = os.pipe()
    signal.signal(signal.SIGTRAP, lambda *_: os.write(ends[1], b"x"))


def read_until_trapped():
    print("reads", flush=True)
    os.read(ends[0], 1)


def burst(count):
    """Writes of two threads: one by the interpreter, one beside it; and traps without a cause."""

    def beside():
        target = ctypes.addressof(ctypes.c_char.from_buffer(array)) + 8
        for number in range(count):
            ctypes.memset(target, number % 256, 1)
            if number % (count // 2) == 0:
                stray_trap()

    thread = threading.Thread(target=beside)
    thread.start()
    often(count)
    thread.join()


writing = threading.Event()
writers = []


def start_writing():
    """Bursts, one after another, until they are stopped."""

    def write():
        while writing.is_set():
            burst(20_000)

    writing.set()
    writers[:] = [threading.Thread(target=write)]
    writers[0].start()


def stop_writing():
    writing.clear()
    writers[0].join()


def block_traps():
    """A thread in which no handler of SIGTRAP would run."""
    blocks = threading.Event()

    def block():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTRAP])
        blocks.set()
        threading.Event().wait()

    threading.Thread(target=block, daemon=True).start()
    blocks.wait()


def trap():
    os.kill(os.getpid(), signal.SIGTRAP)


def in_thread(function, *args):
    thread = threading.Thread(target=function, args=args, name="worker")
    thread.start()
    thread.join()


if __name__ == "__main__":
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        exec(line)
        print("done", flush=True)
