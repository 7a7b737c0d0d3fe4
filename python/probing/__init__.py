"""Debug Python processes that are already running.

``probing.connect(pid)`` debugs another process from this one. ``probing.start()`` puts the probe into this process,
so that others can; ``PROBING=1`` does that without a change to the program. ``probing.record("train", loss=0.5)`` keeps
a row for whoever looks, now or when the process is gone. Importing this package does nothing by itself.
"""

# As type checkers know it; importing typing for it would cost every target some milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from probing import debugger, torch
    from probing._connect import Probe, connect
    from probing._errors import (
        ProbingError,
        RemoteError,
        RemoteSyntaxError,
        RemoteTimeoutError,
        TargetError,
        UnsupportedError,
    )
    from probing._probe import event, record, step
    from probing._recording import span, table
    from probing._results import Backtrace, EvalResult, Table
    from probing._stops import Breakpoint, Stop
    from probing._tensors import TensorHook, hook_tensor
    from probing._tracing import probe, trace

__all__ = [
    "Backtrace",
    "Breakpoint",
    "EvalResult",
    "Probe",
    "ProbingError",
    "RemoteError",
    "RemoteSyntaxError",
    "RemoteTimeoutError",
    "Stop",
    "Table",
    "TargetError",
    "TensorHook",
    "UnsupportedError",
    "__version__",
    "breakpoint",
    "connect",
    "debugger",
    "event",
    "hook_tensor",
    "probe",
    "record",
    "span",
    "start",
    "step",
    "stop",
    "table",
    "torch",
    "trace",
]

__version__: str


def start() -> bool:
    """Start the probe in this process, so that ``probing -t PID ...`` reaches it.

    Returns False when it runs already. Raises OSError, with a hint, when it cannot listen.
    """
    from probing import _probe

    return _probe.start()


def breakpoint() -> bool:
    """Stop this thread here if a client debugs this process. Returns whether it stopped."""
    from probing import _probe

    return _probe.breakpoint()


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
        if name in ("debugger", "torch"):
            import importlib

            return importlib.import_module(f"probing.{name}")
        modules: tuple[object, ...] = ()
        if name in ("record", "event", "step"):
            from probing import _probe

            modules = (_probe,)
        elif name in ("span", "table"):
            from probing import _recording

            modules = (_recording,)
        elif name in ("TensorHook", "hook_tensor"):
            from probing import _tensors

            modules = (_tensors,)
        elif name in ("probe", "trace"):
            from probing import _tracing

            modules = (_tracing,)
        elif name in __all__:
            from probing import _connect, _errors, _results, _stops

            modules = (_connect, _errors, _results, _stops)
        for module in modules:
            if name in vars(module):
                # Kept: the next use finds it at once.
                return globals().setdefault(name, vars(module)[name])
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
