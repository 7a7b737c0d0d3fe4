"""Records what it is told to, line by line, and says what came of it."""

import asyncio
import dataclasses
import os
import sys
import threading

import probing
from probing import _probe

names = {
    "asyncio": asyncio,
    "dataclasses": dataclasses,
    "os": os,
    "probing": probing,
    "storage": _probe.storage,
    "sys": sys,
    "threading": threading,
}

print("ready", flush=True)
for line in sys.stdin:
    try:
        exec(line.replace("\\n", "\n"), names)
        print("done", flush=True)
    except Exception as error:
        print(f"{type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
