"""Calls small functions as fast as it can, as `calls.py` does; for each line that it hears it tells how far it is."""

import sys
import threading


def loop_a_b(x):
    return x


def loop_a(x):
    return loop_a_b(x)


def loop_c(n):
    return n if n < 2 else loop_c(n - 1) + loop_c(n - 2)


def loop():
    global rounds
    while not ended:
        loop_a(1)
        loop_c(5)
        rounds += 1


def answer():
    for _ in sys.stdin:
        print(rounds, flush=True)
    ended.append(True)


rounds, ended = 0, []
threading.Thread(target=answer, name="answers").start()
print("ready", flush=True)
loop()
