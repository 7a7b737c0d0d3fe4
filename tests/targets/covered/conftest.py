"""Says `ready` when what is tested has been loaded, and lets the tests begin when a line has come."""

import sys

import prices

assert prices.RATE == 0.5


def pytest_collection_finish():
    print("ready", flush=True)
    sys.stdin.readline()
