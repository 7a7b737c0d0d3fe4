"""Imports what it is told to and waits."""

import importlib
import sys

for name in sys.argv[1:]:
    importlib.import_module(name)
print("ready", flush=True)
sys.stdin.readline()
