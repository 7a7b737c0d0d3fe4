"""Tells Python warnings of expressions. Runs inside the target, called by warned.rs alone."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from warnings import WarningMessage

# Of one warning, in characters.
MESSAGE = 500


def told(warning: WarningMessage) -> str:
    """Tell a warning, and have its place forget it: the program's own is shown as if ours had never been."""
    text = str(warning.message)
    key = text, warning.category
    frame: FrameType | None = sys._getframe()
    place = warning.filename, warning.lineno
    while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != place:
        frame = frame.f_back
    registry = None if frame is None else frame.f_globals.get("__warningregistry__")
    if type(registry) is dict:
        # Had one of them been there before, nothing would have been shown.
        for entry in (key, (*key, warning.lineno), (*key, 0)):
            registry.pop(entry, None)
    told = f"{warning.category.__name__}: {text}"
    return told if len(told) <= MESSAGE else f"{told[:MESSAGE]}…"
