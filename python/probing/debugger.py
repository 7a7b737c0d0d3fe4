"""Breakpoints and watches of this process itself.

>>> import probing
>>> probing.debugger.break_at("train.py:120", condition="loss > 10", action="log:{step} {loss}")
Breakpoint(id=1, place='train.py:120', ...)

The same as :func:`probing.connect` has for other processes, whose words these are. The probe is started if it is not
there yet; each call asks it as any client would. A thread that stops waits for ``probing -t PID debug``.
"""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from probing import start
from probing._connect import Probe, connect

__all__ = ["break_at", "disarm", "points", "release", "stops", "watch"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _of_this_process(method: Callable[Concatenate[Probe, _P], _R]) -> Callable[_P, _R]:
    """Make a function of a method of :class:`probing.Probe`: it asks the probe of this process."""

    @functools.wraps(method)
    def ask(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        start()
        with connect(os.getpid(), attach=False) as probe:
            return method(probe, *args, **kwargs)

    _, *parameters = inspect.signature(method).parameters.values()
    vars(ask)["__signature__"] = inspect.signature(method).replace(parameters=parameters)
    ask.__module__ = __name__
    return ask


break_at = _of_this_process(Probe.break_at)
watch = _of_this_process(Probe.watch)
points = _of_this_process(Probe.breakpoints)
disarm = _of_this_process(Probe.disarm)
stops = _of_this_process(Probe.stops)
release = _of_this_process(Probe.release)
