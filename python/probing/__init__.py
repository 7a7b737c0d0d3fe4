"""Look into Python processes that are already running.

``probing.start()`` puts the probe into this process; ``PROBING=1`` does it without a change to the program.
Importing this package does nothing by itself.
"""

__all__ = ["__version__", "start", "stop"]

__version__: str


def start() -> bool:
    """Start the probe in this process, so that ``probing -t PID ...`` reaches it.

    Returns False when it runs already. Raises OSError, with a hint, when it cannot listen.
    """
    from probing import _probe

    return _probe.start()


def stop() -> bool:
    """Take the probe out again: its thread ends and its files are removed. Returns False when none runs."""
    from probing import _probe

    return _probe.stop()


def __getattr__(name: str) -> str:
    # The version is the native module's, which is not loaded before it is needed.
    if name == "__version__":
        from probing import _probe

        return _probe.__version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
