"""Four ranks of a job, one of which hangs: the others wait for it in `all_reduce`. It needs nothing but Python.

    PROBING=1 python examples/stuck_rank.py &
    probing --ranks all backtrace

shows that rank 2 has not come to `all_reduce`: it still reads its batch.
"""

import os
import socket
import subprocess
import sys

RANKS = 4


def load_batch(rank: int, step: int) -> int:
    if rank == 2 and step == 50:
        shard, _ = os.pipe()  # The fault: a disk that does not answer.
        os.read(shard, 8)
    return rank + step


def all_reduce(hub: socket.socket, number: int) -> int:
    hub.sendall(number.to_bytes(8, "little"))
    return int.from_bytes(hub.recv(8), "little")


def train(rank: int, hub: socket.socket) -> None:
    for step in range(100):
        batch = load_batch(rank, step)
        all_reduce(hub, batch)


def launch() -> None:
    """Start the ranks, and add up what they send."""
    pairs = [socket.socketpair() for _ in range(RANKS)]
    for rank, (_, end) in enumerate(pairs):
        environ = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "HUB": str(end.fileno())}
        subprocess.Popen([sys.executable, __file__], env=environ, pass_fds=[end.fileno()])
        end.close()
    hubs = [hub for hub, _ in pairs]
    while numbers := [hub.recv(8) for hub in hubs]:
        if not all(numbers):
            break  # A rank has ended, and with this the others do.
        total = sum(int.from_bytes(number, "little") for number in numbers)
        for hub in hubs:
            hub.sendall(total.to_bytes(8, "little"))


if __name__ == "__main__":
    if "RANK" in os.environ:
        hub = socket.socket(fileno=int(os.environ["HUB"]))
        train(int(os.environ["RANK"]), hub)
    else:
        launch()
