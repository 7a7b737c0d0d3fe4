"""Writes to bytes of its own as each line of its standard input says, and stays where it wrote until the next line."""

import ctypes
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


def in_thread(function, *args):
    thread = threading.Thread(target=function, args=args, name="worker")
    thread.start()
    thread.join()


if __name__ == "__main__":
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        exec(line)
        print("done", flush=True)
