"""Look into Python processes that are already running.

``probing.connect(pid)`` looks into another process from this one. ``probing.start()`` puts the probe into this process,
so that others can; ``PROBING=1`` does that without a change to the program. Importing this package does nothing by
itself.
"""

# As type checkers know it; importing typing for it would cost every target some milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from probing._connect import Probe, connect
    from probing._errors import (
        ProbingError,
        RemoteError,
        RemoteSyntaxError,
        RemoteTimeoutError,
        TargetError,
        UnsupportedError,
    )
    from probing._results import Backtrace, EvalResult, Table

__all__ = [
    "Backtrace",
    "EvalResult",
    "Probe",
    "ProbingError",
    "RemoteError",
    "RemoteSyntaxError",
    "RemoteTimeoutError",
    "Table",
    "TargetError",
    "UnsupportedError",
    "__version__",
    "connect",
    "start",
    "stop",
]

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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # Loaded when it is needed, not before: most programs that import this package are targets.
        if name == "__version__":
            from probing import _probe

            return _probe.__version__
        if name in __all__:
            from probing import _connect, _errors, _results

            for module in (_connect, _errors, _results):
                if name in vars(module):
                    return vars(module)[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
