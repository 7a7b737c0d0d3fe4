"""``connect()``: debug another Python process from this one."""

import math
import os
import weakref
from types import TracebackType
from typing import Any

from probing._command import Command, Line
from probing._errors import RemoteError, RemoteSyntaxError, RemoteTimeoutError, TracebackFrame
from probing._results import Backtrace, EvalResult, Table, literal
from probing._stops import Breakpoint, Stop, asked_arm, breakpoints, numbers, stops

# Of output, in bytes.
_MAX_OUTPUT = 10_000_000


def connect(
    target: int | str | None = None,
    /,
    *,
    pid: int | None = None,
    name: str | None = None,
    token: str | None = None,
    fingerprint: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    accept_new: bool = False,
    attach: bool = True,
) -> "Probe":
    """Connect to a Python process: a pid, a script's name, ``"unix:/path"`` or ``"host:port"``.

    >>> with connect(pid=4242) as probe:
    ...     probe.eval("loss").value
    0.25

    ``connect(4242)`` and ``connect(pid=4242)`` are the same, as are ``connect("train.py")`` and
    ``connect(name="train.py")``: one process must be called so.

    For ``"host:port"``, ``token`` is the agent's token. The agent must be trusted before the token is used: its
    certificate has the SHA-256 ``fingerprint``, or is signed by an authority in the PEM file ``ca``, or an earlier
    command has met and remembered it. ``accept_new=True`` trusts and remembers an agent that was never met.

    The first ``eval`` attaches the probe if the process has none;
    ``attach=False`` forbids that. Raises TargetError when there is no such process.
    """
    named = [str(word) for word in (target, pid, name) if word is not None]
    if len(named) != 1:
        raise TypeError("connect() needs one target: a pid, a name, 'unix:/path' or 'host:port'")
    arguments = ["--target", *named] if attach else ["--no-attach", "--target", *named]
    if fingerprint is not None:
        arguments += ["--fingerprint", fingerprint]
    if ca is not None:
        arguments += ["--ca", os.fspath(ca)]
    if accept_new:
        arguments.append("--accept-new")
    # Not among the arguments, which everybody on the machine can read.
    environ = {**os.environ} if token is None else {**os.environ, "PROBING_TOKEN": token}
    return Probe(Command(arguments, environ))


class Probe:
    """A connection to one process. Made by :func:`connect`; threads may use it at the same time.

    Use it in a ``with`` statement, or call :meth:`close`. The process keeps running either way.
    """

    def __init__(self, command: Command) -> None:
        self._command = command
        # Also when this program ends, or drops its last reference.
        self._close = weakref.finalize(self, command.close)
        hello = command.hello
        self.pid: int = hello["pid"]
        """Its pid, as seen from here."""
        self.python: str | None = hello.get("python")
        """The version of its interpreter, as exactly as it is known."""
        self.rank: int | None = hello.get("rank")
        """Its rank in its job, if it has one."""
        self.command: tuple[str, ...] = tuple(hello["command"])
        """Its command line."""

    def eval(
        self,
        code: str,
        *,
        thread: int | str | None = None,
        frame: int | str | None = None,
        timeout: float | None = 30.0,
        max_output: int | None = _MAX_OUTPUT,
    ) -> EvalResult:
        """Run code in the live ``__main__`` of the process, on a thread of its own.

        What it assigns the program sees. With ``thread`` (``"main"``, a name or an id) it runs on that thread of the
        program, at a bytecode boundary. With ``frame`` it runs with the locals of that frame of the main thread or of
        ``thread``, which may be stuck: 0 is the innermost, -1 the outermost, a name the innermost of that function. At
        most ``max_output`` bytes that it prints are kept (None: all); ``output_dropped`` counts the rest.

        Raises RemoteError when the code raises, RemoteSyntaxError when it is not Python, and RemoteTimeoutError when it
        takes longer than ``timeout`` seconds (None: no limit), after interrupting it. Ctrl-C also interrupts it.
        """
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout is not a number of seconds: {timeout}")
        timeout = None if timeout == math.inf else timeout
        asked = {"thread": _word(thread), "frame": frame, "max_output": max_output, "timeout_seconds": timeout}
        output: list[str] = []
        with self._command.ask("eval", code=code, **_given(asked)) as answer:
            while (line := answer.next())["event"] == "output":
                output.append(line["text"])
        return _evaluated(line, "".join(output), timeout)

    def backtrace(
        self,
        *,
        all: bool = False,
        thread: int | str | None = None,
        tasks: bool = False,
        locals: bool = False,
        native: bool = False,
    ) -> Backtrace:
        """Where the main thread is, or ``all`` threads, or one ``thread`` by its name or id, or the asyncio ``tasks``.

        Read from outside: nothing runs in the process, and it may hang, be stopped or hold its GIL. With ``native``
        frames of C code are included. With ``locals`` every frame has its local variables; a process that has a
        probe shows them by ``repr``.
        """
        asked = {"all": all, "thread": _word(thread), "tasks": tasks, "locals": locals, "native": native}
        line = self._ask("backtrace", **_given(asked))
        return Backtrace(line["text"], line["report"])

    def threads(self) -> Table:
        """Every thread that Python knows: its ids, name, what it waits in, what it has to do with the GIL."""
        return self.backtrace(all=True).to_threads()

    def query(self, sql: str) -> Table:
        """Ask by SQL: stacks, threads, the process, what it recorded. ``SHOW TABLES`` lists the tables.

        >>> probe.query("SELECT func, lineno FROM python.backtrace WHERE depth = 0")
        func  lineno
        step  42

        Queries only read, from outside: nothing runs in the process, and it may hang, be stopped or hold its GIL.
        """
        line = self._ask("query", sql=sql)
        return Table(line["columns"], line["rows"], line.get("note"))

    def break_at(
        self,
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
        """Arm a breakpoint: at ``"train.py:120"``, a function, a class of exceptions, or an ``uncaught`` one.

        >>> probe.break_at("train_step", condition="loss > 10", action="log:{step} {loss}").bound
        (TracebackFrame(func='train_step', file='/home/ann/train.py', lineno=118),)

        ``action`` is ``"stop"`` (the thread waits for ``probing -t PID debug``), ``"log:TEXT"``, ``"snapshot"`` or
        ``"count"``; ``python.captures`` has log lines and snapshots. ``hits`` is the first hit that counts, ``once``
        disarms it then. After ``for_`` seconds it is disarmed (0: never; None: 10 minutes for those that stop). An
        expression (``condition``, ``log:TEXT``) that runs for ``expression_timeout`` seconds is interrupted, and the
        breakpoint disarmed (0: never; None: after one second).
        """
        where = {"place": place, "raise": raises, "uncaught": uncaught or None}
        asked = asked_arm(
            where,
            condition=condition,
            action=action,
            hits=hits,
            once=once,
            for_=for_,
            expression_timeout=expression_timeout,
        )
        return breakpoints(self._ask("arm", **asked))[0]

    def watch(
        self,
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
        """Watch a variable: ``"train_step:lr"`` for a local one, ``"env:NAME"``, else a name with attributes and items.

        Every change is a row of ``python.variables``; ``stats`` also records statistics of tensors.
        ``action="stop"`` stops the thread that made it.
        """
        where = {"watch": variable}
        asked = asked_arm(
            where,
            condition=condition,
            action=action,
            hits=hits,
            once=once,
            for_=for_,
            expression_timeout=expression_timeout,
            stats=stats,
        )
        return breakpoints(self._ask("arm", **asked))[0]

    def breakpoints(self) -> list[Breakpoint]:
        """Breakpoints and watchpoints that are set. Does not attach a probe."""
        return breakpoints(self._ask("points"))

    def disarm(self, *which: int | Breakpoint) -> list[Breakpoint]:
        """Delete these, or all when none is named. Returns the deleted ones."""
        return breakpoints(self._ask("disarm", points=numbers(which)))

    def stops(self) -> list[Stop]:
        """The threads that are stopped at breakpoints."""
        return stops(self._ask("stops"))

    def release(self, *which: int | Stop) -> list[Stop]:
        """Resume these stopped threads, or all when none is named. Returns the resumed ones."""
        return stops(self._ask("release", stops=numbers(which)))

    def detach(self) -> None:
        """Take the probe out of the process, for everyone, and close this connection."""
        self._ask("detach")
        self.close()

    def close(self) -> None:
        """End the connection; code of ours that still runs is interrupted. The probe stays where it is."""
        self._close()

    def __enter__(self) -> "Probe":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "" if self._close.alive else ", closed"
        return f"<probe in process {self.pid}: {' '.join(self.command)}{state}>"

    def _ask(self, op: str, **arguments: object) -> Line:
        with self._command.ask(op, **arguments) as answer:
            return answer.next()


def _word(thread: int | str | None) -> str | None:
    return None if thread is None else str(thread)


def _given(asked: dict[str, Any]) -> dict[str, Any]:
    """What is not None."""
    return {name: value for name, value in asked.items() if value is not None}


Probe.__module__ = "probing"
connect.__module__ = "probing"


def _evaluated(line: Line, output: str, timeout: float | None) -> EvalResult:
    """The result; or raises how else it ended."""
    hint = "allow more time with timeout=SECONDS (None: no limit)"
    if line["event"] == "stuck":
        why, stack = f"timed out after {timeout} s: {line['reason']}", line.get("stack", "")
        raise RemoteTimeoutError(why, hint=hint, output=output, stack=stack)
    if line["timed_out"]:
        raise RemoteTimeoutError(f"timed out after {timeout} s: the code was interrupted", hint=hint, output=output)
    if line["outcome"] == "raised":
        frames = tuple(TracebackFrame(frame["func"], frame["file"], frame["lineno"]) for frame in line["frames"])
        raise RemoteError(
            line["message"], type=line["exception"], traceback=line["traceback"], frames=frames, output=output
        )
    if line["outcome"] == "syntax_error":
        text = line["text"]
        raise RemoteSyntaxError(text.rstrip().rpartition("\n")[2], type="SyntaxError", traceback=text, output=output)
    text = line.get("value")
    value = None if text is None else literal(text)
    return EvalResult(
        value=value,
        text=text,
        output=output,
        seconds=line["took_nanos"] / 1e9,
        output_dropped=line.get("output_dropped", 0),
        thread=line.get("thread"),
    )
