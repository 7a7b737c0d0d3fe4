"""Tells whether the program can import torch. Runs in the target, called by arrival.rs alone."""

from __future__ import annotations

import sys


def may_come() -> bool:
    """Say whether torch can be found."""
    from importlib.util import find_spec

    try:
        return find_spec("torch") is not None
    except (ImportError, ValueError):
        # It is being imported at this moment, or is an odd one.
        return "torch" in sys.modules
