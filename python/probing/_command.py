"""The native command, which does the talking: found beside this package, spoken to in lines of JSON.

Sockets, private folders and attaching are the command's business and known nowhere in Python. ``docs/protocol.md``
shows the lines.
"""

import contextlib
import itertools
import json
import os
import select
import subprocess
import sysconfig
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, NoReturn

from probing._errors import ProbingError, TargetError, UnsupportedError

__all__ = ["Answer", "Command", "Line", "raise_failure"]

Line = dict[str, Any]

# How long the command may take to end, and interrupted code to say so.
_PATIENCE_SECONDS = 3.0

_CLOSED: Line = {"event": "failed", "kind": "failed", "error": "this connection is closed"}


def _path() -> Path:
    """The command that was installed with this package."""
    try:
        recorded = distribution("probing-debugger").files or []
    except PackageNotFoundError:
        recorded = []
    beside = [Path(str(file.locate())) for file in recorded if file.name == "probing" and file.parent.name == "bin"]
    for path in (*beside, Path(sysconfig.get_path("scripts"), "probing")):
        if path.is_file():
            return path.resolve()
    # Not by its name: on PyPI that is another project's.
    hint = "run `pip install .` in a checkout of Probing"
    raise ProbingError("the command `probing` was not found beside this package", hint=hint)


class Command:
    """One ``probing connect``, for one target. Threads may use it at the same time.

    It lives in a session of its own: Ctrl-C is for the program, which decides what it means.
    """

    def __init__(self, arguments: Sequence[str], environ: dict[str, str]) -> None:
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [_path(), *arguments, "connect"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environ,
        )
        self._ids = itertools.count(1)
        self._sending = threading.Lock()
        # Guards the two below.
        self._answering = threading.Lock()
        self._answers: dict[int, SimpleQueue[Line | None]] = {}
        self._last_word: Line | None = None
        _inherited.add(self)
        try:
            lines = self._lines()
            self.hello: Line = next(lines, {}) or self._unexpected_end()
            if self.hello["event"] != "hello":
                raise_failure(self.hello)
        except BaseException:
            self._end()
            raise
        self._reader = threading.Thread(target=self._read, args=(lines,), name="probing-connect", daemon=True)
        self._reader.start()

    def ask(self, op: str, **arguments: object) -> "Answer":
        """Send a request; what comes back is the answer's."""
        if os.getpid() != self._owner:
            raise ProbingError(
                f"this connection belongs to process {self._owner}, whose fork this process is",
                hint="connect again in this process",
            )
        number = next(self._ids)
        answer = Answer(self, number)
        with self._answering:
            if self._last_word is not None:
                raise_failure(self._last_word)
            self._answers[number] = answer.lines
        try:
            self._send({"id": number, "op": op, **arguments})
        except BaseException:
            # It may have gone all the same.
            self.tell("cancel", request=number)
            self.forget(number)
            raise
        return answer

    def tell(self, op: str, **arguments: object) -> None:
        """Send a request without waiting for its answer."""
        self._send({"id": next(self._ids), "op": op, **arguments})

    def forget(self, number: int) -> None:
        """Nobody waits for this answer any more."""
        with self._answering:
            self._answers.pop(number, None)

    def close(self) -> None:
        """End the command; code of ours that still runs in the target is interrupted."""
        if os.getpid() != self._owner:
            return
        with self._answering:
            if self._last_word is None:
                self._last_word = _CLOSED
        with self._sending:
            _file(self._process.stdin).close()
        self._reader.join(_PATIENCE_SECONDS)
        if self._reader.is_alive():
            # Someone else has our end of its input: a child that was forked without Python knowing.
            self._process.kill()
            self._reader.join()

    def _send(self, message: Line) -> None:
        line = json.dumps(message, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with self._sending:
            stdin = _file(self._process.stdin)
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[stdin.write(rest) or 0 :]
            except (BrokenPipeError, ValueError):
                # It has ended, or is closed; the reader reports that.
                pass
            except BaseException:
                # Interrupted. A short line went as a whole or not at all; half of a long one cannot be taken back.
                if len(line) > select.PIPE_BUF:
                    stdin.close()
                raise

    def _lines(self) -> Iterator[Line]:
        stdout, buffer = _file(self._process.stdout), bytearray()
        while piece := stdout.read(1 << 16):
            start = len(buffer)
            buffer += piece
            while (end := buffer.find(b"\n", start)) >= 0:
                line: Line = json.loads(bytes(buffer[:end]))
                yield line
                del buffer[: end + 1]
                start = 0

    def _read(self, lines: Iterator[Line]) -> None:
        last_word: Line | None = None
        try:
            for line in lines:
                number = line.get("id")
                if number is None:
                    last_word = line
                    continue
                with self._answering:
                    answer = self._answers.get(number)
                if answer is not None:
                    answer.put(line)
        finally:
            last_word = last_word or self._unexpected_end()
            self._end()
            with self._answering:
                self._last_word = self._last_word or last_word
                waiting = list(self._answers.values())
            for answer in waiting:
                answer.put(None)

    def _unexpected_end(self) -> Line:
        status = self._process.wait()
        words = _file(self._process.stderr).read(1 << 16).decode(errors="replace").strip()
        # The first paragraph of what it says about itself.
        words = words.partition("\n\n")[0].removeprefix("error: ")
        return {"event": "failed", "kind": "unreachable", "error": words or f"the command ended with status {status}"}

    def _end(self) -> None:
        """End the command and remove all of its resources."""
        self._process.kill()
        self._process.wait()
        with self._sending:
            _file(self._process.stdin).close()
        _file(self._process.stdout).close()
        _file(self._process.stderr).close()

    def leave_to_parent(self) -> None:
        """In a fork: the command is the parent's, and must see the parent's end of its input close."""
        for file in (self._process.stdin, self._process.stdout, self._process.stderr):
            _file(file).close()
        # Nobody to wait for.
        self._process.returncode = 0

    @property
    def last_word(self) -> Line:
        """Why there will be no more answers."""
        with self._answering:
            return self._last_word or _CLOSED


class Answer:
    """The lines that belong to one request, as they come. Leaving it before the last interrupts the request."""

    def __init__(self, command: Command, number: int) -> None:
        self._command = command
        self._number = number
        self._is_over = False
        self.lines: SimpleQueue[Line | None] = SimpleQueue()

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            if not self._is_over:
                self.cancel()
        finally:
            self._command.forget(self._number)

    def next(self) -> Line:
        """Return the next line. Raises its error when the request failed."""
        line = self.lines.get() or self._command.last_word
        self._is_over = line["event"] != "output"
        if line["event"] in ("failed", "gone"):
            raise_failure(line)
        return line

    def cancel(self) -> None:
        """Interrupt the request, and wait a moment for its end."""
        self._command.tell("cancel", request=self._number)
        until = time.monotonic() + _PATIENCE_SECONDS
        with contextlib.suppress(Empty):
            while not self._is_over:
                line = self.lines.get(timeout=max(0.0, until - time.monotonic()))
                self._is_over = line is None or line["event"] != "output"


def raise_failure(line: Line) -> NoReturn:
    """Raise the error that the command reports."""
    if line["event"] == "gone":
        raise TargetError(line["reason"])
    kind = {"unreachable": TargetError, "unsupported": UnsupportedError}.get(line["kind"], ProbingError)
    raise kind(line["error"], hint=line.get("hint"))


def _file(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


_inherited: "weakref.WeakSet[Command]" = weakref.WeakSet()


def _after_fork() -> None:
    for command in list(_inherited):
        command.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
