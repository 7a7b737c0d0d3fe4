"""Threads that check their own arithmetic."""

import math
import threading
import time

wrong = rounds = 0


def total():
    return sum(math.sin(i) * 1.000001**i / 3.3 for i in range(2000))


EXPECTED = total()


def check():
    global wrong, rounds
    while True:
        wrong += total() != EXPECTED
        rounds += 1


threading.Thread(target=check, daemon=True).start()
threading.Thread(target=lambda: time.sleep(3600), daemon=True).start()
print("ready", flush=True)
check()
