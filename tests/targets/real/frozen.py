"""A program that PyInstaller makes a file of, and that a chroot holds: sums, round after round, beside a thread."""

import os
import threading

import rounds

served = threading.Event()


def work(upto):
    total = 0
    for number in range(upto):
        total += number * number  # @step
    return total


def serve():
    served.wait()


if __name__ == "__main__":
    server = threading.Thread(target=serve, name="server")
    server.start()
    while True:
        if rounds.add(work(2000)):
            rounds.say("ready", os.getpid())
        if rounds.is_over():
            break
    served.set()
    server.join()
    rounds.tell()
