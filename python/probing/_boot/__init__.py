"""Starts the probe before the program's first line: imported by the start-up hook when ``PROBING`` asks for it.

A guest does not disturb: when the probe cannot start, the program runs without it and nothing is printed.
``probing list`` shows that it is missing.
"""

try:
    from probing import start

    start()
except (ImportError, OSError):
    pass
