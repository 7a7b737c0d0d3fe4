"""Starts the probe before the program's first line: called by the start-up hook when ``PROBING`` asks for it."""

import sys


def start() -> None:
    """Start the probe, or let the program run without it: a guest that cannot come in does not make a noise.

    ``probing list`` shows that it is missing. The name ``probing`` is left to the program, which may have a module of
    its own that is called so; importing ours finds the native half in its place.
    """
    try:
        from probing import _probe

        _probe.start()
    except (ImportError, OSError):
        pass
    for name in ("probing", __name__):
        sys.modules.pop(name, None)
