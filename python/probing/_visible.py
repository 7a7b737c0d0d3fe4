"""The visible form of characters that a terminal obeys instead of showing them.

What a target says is data: names, values and errors may contain escape sequences. The values themselves stay as they
are; whatever is shown of them (``repr``, ``str``, HTML) goes through here.
"""

import re

# Control characters (C0, DEL, C1), separators of lines and paragraphs, and what turns the direction of text around. As
# in crates/probing-proto/src/visible.rs.
_ACTIVE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_ACTIVE_BUT_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def line(text: str) -> str:
    """On one line: also line breaks and tabs are shown."""
    return _ACTIVE.sub(_escape, text)


def lines(text: str) -> str:
    """Line breaks and tabs stay what they are."""
    return _ACTIVE_BUT_LINES.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"
