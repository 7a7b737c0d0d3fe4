"""Threads that do the same again and again, for tests that switch something on and off beside them."""

import gc
import sys
import threading
import time

# Threads take turns often: whatever one of them can be in the middle of, it will be.
sys.setswitchinterval(0.0005)
# What a thread has failed by: nothing, ever.
errors = []
_laps = {}
_resting = set()
_go = threading.Event()
_go.set()


def start(*works):
    """Have each of these called by a thread of its own, with a number that grows."""
    for work in works:
        _laps[work.__name__] = 0
        threading.Thread(target=_forever, args=(work,), name=work.__name__, daemon=True).start()


def _forever(work):
    name = work.__name__
    while True:
        if not _go.is_set():
            _resting.add(name)
            _go.wait()
            _resting.discard(name)
        try:
            work(_laps[name])
        except BaseException as error:
            errors.append(f"{name}: {error!r}")
            raise
        _laps[name] += 1


def lap():
    """Wait until every thread has done all of its work once, from beginning to end."""
    before = dict(_laps)
    while not errors and any(_laps[name] < before[name] + 2 for name in before):
        time.sleep(0.0005)
    return errors


def blocks():
    """Tell how many blocks of memory Python has given out, while no thread does anything."""
    _go.clear()
    while not errors and len(_resting) < len(_laps):
        time.sleep(0.0005)
    for _ in range(3):
        gc.collect()
    count = sys.getallocatedblocks()
    _go.set()
    return count


def serve():
    """Start the probe again whenever a line asks for it, until there are no more."""
    for _ in sys.stdin:
        import probing

        probing.start()
        print("started", flush=True)
