"""Breakpoints, watches and stopped threads, as values."""

from dataclasses import dataclass
from typing import Any

from probing._command import Line
from probing._errors import TracebackFrame

__all__ = ["Breakpoint", "Stop", "asked_arm", "breakpoints", "numbers", "stops"]


@dataclass(frozen=True)
class Breakpoint:
    """A breakpoint or a watch, as it was when it was asked for."""

    id: int
    place: str
    """What was asked for: ``train.py:120``, a function, an exception, a variable."""
    action: str
    """``stop``, ``log``, ``snapshot`` or ``count``."""
    condition: str | None
    bound: tuple[TracebackFrame, ...]
    """The code that it is bound to. Empty while that code is not loaded, and for watchpoints without code."""
    hits: int
    """How often its place was passed; with a condition, where that was true."""
    fired: int
    """How often something was done."""
    dropped: int
    """Log lines and snapshots that were left out, since there were too many in a second."""
    expires_in: float | None
    """Seconds until it expires. None: never."""
    cost: str
    """What it costs the program, in words."""
    told_by: str
    """The mechanism by which the interpreter reports hits."""
    note: str | None
    """Why it cannot do all that it should."""


@dataclass(frozen=True)
class Stop:
    """A thread that stopped, as it was when it was asked for."""

    id: int
    thread_id: int
    """The kernel's number of it."""
    thread_name: str
    why: str
    """``breakpoint``, ``step``, ``asked`` (``probing.breakpoint()``), ``changed`` or ``raised``."""
    frames: tuple[TracebackFrame, ...]
    """Innermost first."""
    seconds: float
    """How long it has been stopped."""
    ends_in: float
    """Seconds until it resumes by itself if no client asks anything."""


def breakpoints(line: Line) -> list[Breakpoint]:
    """Those that a line of JSON describes."""
    return [_breakpoint(point) for point in line["points"]]


def stops(line: Line) -> list[Stop]:
    """Those that a line of JSON describes."""
    return [_stop(stop) for stop in line["stops"]]


def numbers(these: "tuple[int | Breakpoint | Stop, ...]") -> list[int]:
    """Their numbers."""
    return [one if isinstance(one, int) else one.id for one in these]


def asked_arm(
    where: dict[str, Any],
    *,
    condition: str | None,
    action: str | None,
    hits: int,
    once: bool,
    for_: float | None,
    expression_timeout: float | None,
    stats: bool = False,
) -> dict[str, Any]:
    """The fields of a request, without those that have their default."""
    asked: dict[str, Any] = {**where, "condition": condition, "action": action, "ttl_seconds": for_}
    asked["expression_timeout_seconds"] = expression_timeout
    if hits != 1:
        asked["hits"] = hits
    if once:
        asked["once"] = True
    if stats:
        asked["stats"] = True
    return {name: value for name, value in asked.items() if value is not None}


def _breakpoint(point: dict[str, Any]) -> Breakpoint:
    millis = point.get("expires_in_millis")
    return Breakpoint(
        id=point["point"],
        place=_place(point["place"]),
        action=point["action"]["do"],
        condition=point.get("condition"),
        bound=_frames(point["bound"]),
        hits=point["passed"],
        fired=point["fired"],
        dropped=point.get("dropped", 0),
        expires_in=None if millis is None else millis / 1000,
        cost=point["cost"],
        told_by=point["by"],
        note=point.get("note"),
    )


def _stop(stop: dict[str, Any]) -> Stop:
    return Stop(
        id=stop["stop"],
        thread_id=stop["thread_id"],
        thread_name=stop["thread_name"],
        why=stop["why"]["why"],
        frames=_frames(stop["frames"]),
        seconds=stop["since_millis"] / 1000,
        ends_in=stop["ends_in_millis"] / 1000,
    )


def _frames(spots: list[dict[str, Any]]) -> tuple[TracebackFrame, ...]:
    return tuple(TracebackFrame(spot["func"], spot["file"], spot["lineno"]) for spot in spots)


def _place(place: dict[str, Any]) -> str:
    kind = place["on"]
    if kind == "line":
        return f"{place['file']}:{place['line']}"
    if kind == "local":
        return f"{place['function']}:{place['name']}"
    return str(place.get("function") or place.get("path") or place.get("exception") or kind)


Breakpoint.__module__ = "probing"
Stop.__module__ = "probing"
