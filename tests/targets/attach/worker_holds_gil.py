"""A worker, whose id is told, keeps the GIL inside C until a line comes; main waits for it."""

import ctypes
import threading

read = ctypes.PyDLL(None).read  # unlike CDLL, calls keep the GIL
byte = ctypes.create_string_buffer(1)


def hold():
    print("ready", threading.get_native_id(), sep="\n", flush=True)
    read(0, byte, 1)
    print("released", flush=True)
    threading.Event().wait()


worker = threading.Thread(target=hold)
worker.start()
worker.join()
