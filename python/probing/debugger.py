"""Breakpoints and watches of this process itself.

>>> import probing
>>> probing.debugger.break_at("train.py:120", condition="loss > 10", action="log:{step} {loss}")
Breakpoint(id=1, place='train.py:120', ...)

The same as :func:`probing.connect` has for other processes, whose words these are. The probe is started if it is not
there yet; each call asks it as any client would. A thread that stops waits for ``probing -t PID debug``.
"""

import os

from probing import start
from probing._connect import Probe, connect
from probing._stops import Breakpoint, Stop

__all__ = ["break_at", "disarm", "points", "release", "stops", "watch"]


def break_at(
    place: str | None = None,
    *,
    raises: str | None = None,
    uncaught: bool = False,
    condition: str | None = None,
    action: str = "stop",
    hits: int = 1,
    once: bool = False,
    for_: float | None = None,
    expression_timeout: float | None = None,
) -> Breakpoint:
    """Arm a breakpoint in this process. See :meth:`probing.Probe.break_at`."""
    with _own() as probe:
        return probe.break_at(
            place,
            raises=raises,
            uncaught=uncaught,
            condition=condition,
            action=action,
            hits=hits,
            once=once,
            for_=for_,
            expression_timeout=expression_timeout,
        )


def watch(
    variable: str,
    *,
    condition: str | None = None,
    action: str = "record",
    hits: int = 1,
    once: bool = False,
    for_: float | None = None,
    expression_timeout: float | None = None,
    stats: bool = False,
) -> Breakpoint:
    """Watch a variable of this process. See :meth:`probing.Probe.watch`."""
    with _own() as probe:
        return probe.watch(
            variable,
            condition=condition,
            action=action,
            hits=hits,
            once=once,
            for_=for_,
            expression_timeout=expression_timeout,
            stats=stats,
        )


def points() -> list[Breakpoint]:
    """Breakpoints and watchpoints that are set in this process."""
    with _own() as probe:
        return probe.breakpoints()


def disarm(*which: int | Breakpoint) -> list[Breakpoint]:
    """Delete these, or all when none is named. Returns the deleted ones."""
    with _own() as probe:
        return probe.disarm(*which)


def stops() -> list[Stop]:
    """The threads of this process that are stopped."""
    with _own() as probe:
        return probe.stops()


def release(*which: int | Stop) -> list[Stop]:
    """Resume these stopped threads, or all when none is named. Returns the resumed ones."""
    with _own() as probe:
        return probe.release(*which)


def _own() -> Probe:
    start()
    return connect(os.getpid(), attach=False)
