"""Tells whether the program can import torch. Runs in the target, called by arrival.rs alone."""

import sys
from _frozen_importlib import _find_spec  # type: ignore[attr-defined]


def may_come() -> bool:
    """Say whether torch can be found."""
    if "torch" in sys.modules:
        return sys.modules["torch"] is not None
    try:
        return _find_spec("torch", None) is not None
    except (ImportError, ValueError):
        return False
