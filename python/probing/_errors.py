"""What can go wrong between this process and a target. Every exception of ours is a ``ProbingError``."""

from typing import NamedTuple

from probing import _visible


class TracebackFrame(NamedTuple):
    """One line of a remote traceback."""

    func: str
    file: str
    lineno: int


class ProbingError(Exception):
    """Something went wrong; ``hint`` says what to do about it."""

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        message = _visible.lines(self.message)
        return f"{message}\nhint: {_visible.lines(self.hint)}" if self.hint else message


class TargetError(ProbingError, ConnectionError):
    """The target cannot be reached, or has ended."""


class UnsupportedError(ProbingError, NotImplementedError):
    """This version cannot do it."""


class RemoteError(ProbingError):
    """The evaluated code raised. The exception itself stays in the target; this describes it.

    ``type`` is the name of its class, ``message`` its text, ``traceback`` what Python would have printed, ``frames``
    the same in pieces, outermost first, ``output`` what the code had printed before.
    """

    def __init__(
        self,
        message: str = "",
        *,
        type: str = "",
        traceback: str = "",
        frames: tuple[TracebackFrame, ...] = (),
        output: str = "",
    ) -> None:
        super().__init__(message)
        self.type = type
        self.traceback = traceback
        self.frames = frames
        self.output = output

    def __str__(self) -> str:
        what = f"{self.type}: {self.message}" if self.message else self.type
        return _visible.lines(f"{what}\n\n{self.traceback.rstrip()}")


class RemoteSyntaxError(RemoteError):
    """The code is not Python; nothing of it ran."""

    def __str__(self) -> str:
        return _visible.lines(f"{self.message}\n\n{self.traceback.rstrip()}")


class RemoteTimeoutError(ProbingError, TimeoutError):
    """Time was up. The code was interrupted; the message says what became of it.

    ``output`` is what it had printed before. ``stack`` shows the thread that keeps code which did not begin or end.
    """

    def __init__(self, message: str = "", *, hint: str | None = None, output: str = "", stack: str = "") -> None:
        super().__init__(message, hint=hint)
        self.output = output
        self.stack = stack

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n\n{_visible.lines(self.stack.rstrip())}" if self.stack else text


# People meet them under the names they import them by, in tracebacks and when pickled.
for _error in (ProbingError, TargetError, UnsupportedError, RemoteError, RemoteSyntaxError, RemoteTimeoutError):
    _error.__module__ = "probing"
