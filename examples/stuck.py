"""A training that stands still: one thread holds the lock while it waits for a server that never answers.

    python examples/stuck.py &
    probing -t stuck.py backtrace
    probing -t stuck.py backtrace --thread saver

shows that the main thread waits for `lock`, and that `save`, which holds it, waits for the server.
"""

import socket
import threading
import time

lock = threading.Lock()
server = socket.create_server(("127.0.0.1", 0))
step = 0


def save() -> None:
    with lock, socket.create_connection(server.getsockname()) as storage:
        storage.sendall(b"checkpoint")
        storage.recv(2)  # The fault: no timeout.


def train_step() -> None:
    with lock:
        time.sleep(0.001)


if __name__ == "__main__":
    while True:
        step += 1
        train_step()
        if step == 100:
            threading.Thread(target=save, name="saver").start()
