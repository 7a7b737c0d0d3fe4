"""Main waits in one system call from C and counts what went wrong: argv = library, name of the call, milliseconds."""

import ctypes
import os
import socket
import sys
import time

library = ctypes.CDLL(sys.argv[1])
kind = sys.argv[2].encode()
milliseconds = int(sys.argv[3])
wait = library.wait_once
wait.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int]

handle, feed = os.pipe()
if kind == b"accept":
    server = socket.create_server(("127.0.0.1", 0))
    handle = server.fileno()
parent = os.getpid()
if kind in (b"read", b"accept") and os.fork() == 0:
    while os.getppid() == parent:
        time.sleep(0.03)
        if kind == b"read":
            os.write(feed, b"x")
        else:
            socket.create_connection(server.getsockname()).close()
    os._exit(0)

failures = []
early = rounds = 0
print("ready", flush=True)
while True:
    began = time.monotonic()
    error = wait(kind, handle, milliseconds)
    rounds += 1
    if error:
        failures.append(os.strerror(error))
    # The others end when something comes, or when the kernel has counted its ticks.
    if kind not in (b"read", b"accept", b"recv"):
        early += time.monotonic() - began < milliseconds * 0.95e-3
