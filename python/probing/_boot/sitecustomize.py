"""Starts the probe in a program that ``probing run`` started, whatever its environment has installed.

This folder is in front of ``PYTHONPATH``, so Python imports this file at start-up, in children, too. It starts the
probe, takes this folder off ``sys.path``, then hands over to the ``sitecustomize`` that Python would have imported
without it. It must run, and do nothing, on Pythons that the probe does not support.
"""

import os
import sys


def _start() -> None:
    if sys.version_info < (3, 10) or "t" in getattr(sys, "abiflags", ""):
        return
    if (os.environ.get("PROBING") or "0") == "0":
        return
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        import _probing_load  # type: ignore[import-not-found]

        _probing_load.start(os.path.join(package, "_probe.abi3.so"))
    except (ImportError, OSError):
        pass
    sys.modules.pop("_probing_load", None)


def _step_aside() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != folder]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


_start()
_step_aside()
