"""Main waits for a signal."""

import signal

print("ready", flush=True)
while True:
    signal.sigwait({signal.SIGUSR1})
