"""Leaks on purpose, and works beside it without leaking; says so, and goes on while it is told to."""

import sys
import threading


class Request:
    def __init__(self, number):
        self.number = number
        self.payload = bytes(4096)  # @payload


kept = []


def remember(request):
    kept.append(request)
    kept.append(bytearray(2048))  # @leak


def serve(count):
    for number in range(count):
        remember(Request(number))
        churn = [bytes(3000) for _ in range(8)]  # @churn
        del churn


names = {"serve": serve, "threading": threading, "kept": kept}

print("ready", flush=True)
for line in sys.stdin:
    exec(line.replace("\\n", "\n"), names)
    print("done", flush=True)
