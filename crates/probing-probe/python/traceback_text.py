"""Exceptions as the user wants to read them. Runs inside the target, called by traceback.rs and by nobody else."""

import linecache
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

Sources = list[tuple[str, str]]
Frame = tuple[str, str, int]

# Frames told of an endless recursion, at each end.
AT_EACH_END = 100


def describe(
    kind: type[BaseException], value: BaseException, trace: TracebackType | None, sources: Sources
) -> tuple[str, str, str, list[Frame]]:
    """Tell ``(class, message, text, frames)`` of an exception that left evaluated code.

    ``sources`` are the texts of recent evals by file name: their lines are shown like those of files.
    """
    # Before 3.12 the value does not know its traceback unless Python code has seen it.
    return _name(kind), _message(value), _text(sources, traceback.format_exception, kind, value, trace), _frames(trace)


def place(value: BaseException, sources: Sources) -> str:
    """Tell where a syntax error is, without the frames that led to compiling the code."""
    return _text(sources, traceback.format_exception_only, value)


def _text(sources: Sources, form: Callable[..., list[str]], *exception: object) -> str:
    for name, source in sources:
        # Each with its line break, also the last: without it 3.12 puts its marks one column off.
        lines = [line + "\n" for line in source.split("\n")]
        linecache.cache[name] = (len(source), None, lines, name)
    try:
        return "".join(form(*exception))
    finally:
        for name, _ in sources:
            linecache.cache.pop(name, None)


def _name(kind: type[BaseException]) -> str:
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _message(value: BaseException) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 (whatever a user's __str__ does, the rest is told)
        return f"<{type(error).__name__} in its __str__>"


def _frames(trace: TracebackType | None) -> list[Frame]:
    frames: list[Frame] = []
    for frame, lineno in traceback.walk_tb(trace):
        if len(frames) == 2 * AT_EACH_END:
            del frames[AT_EACH_END]
        frames.append((frame.f_code.co_name, frame.f_code.co_filename, lineno or 0))
    return frames


def lines_in_archive(file: str) -> list[str] | None:
    """Give the lines of a module that Python itself has imported from a zip file (a zipapp)."""
    zipimport: Any = sys.modules.get("zipimport")
    for name, module in list(sys.modules.items()) if zipimport else ():
        names = module.__dict__ if type(module) is type(sys) else {}
        if names.get("__file__") == file and type(names.get("__loader__")) is zipimport.zipimporter:
            try:
                source = names["__loader__"].get_source(name)
            except (ImportError, OSError, UnicodeError):
                return None
            return None if source is None else source.splitlines()
    return None
