"""Processes that nobody prepared, commands that run beside them, and what becomes of both."""

import contextlib
import mmap
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clients import NoAnswer
from processes import Target

PROGRAM = Path(__file__).parent / "attach_target.py"
# After that a command, or the target, hangs.
DEADLINE_SECONDS = 10.0


@dataclass(frozen=True)
class Done:
    """A command that ended well. Its answer is what it printed, or what came through a pipe meanwhile."""

    wall_seconds: float
    stdout: bytes
    answer: bytes
    answered_seconds: float | None


@contextlib.contextmanager
def unprepared(
    python: Path, environ: Mapping[str, str], threads: int, way: str, depth: int = 0
) -> Iterator["Unprepared"]:
    """A fresh target: see `attach_target.py`. Killed at the end: some tool may have left it hanging."""
    descriptor = os.memfd_create("shared")
    os.ftruncate(descriptor, 16)
    argv: list[str | Path] = [python, PROGRAM, str(threads), way, str(descriptor), str(depth)]
    with subprocess.Popen(
        argv,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[descriptor],
        bufsize=0,  # or a line that a dead one did not take would be written again at the end
    ) as child:
        shared = mmap.mmap(descriptor, 16)
        os.close(descriptor)
        try:
            assert child.stdout is not None
            if child.stdout.readline() != b"ready\n":
                raise NoAnswer(f"the target did not start: {argv}")
            yield Unprepared(child, shared)
        finally:
            child.kill()


class Unprepared:
    def __init__(self, child: "subprocess.Popen[bytes]", shared: mmap.mmap) -> None:
        self._child = child
        self._shared = memoryview(shared).cast("q")

    @property
    def pid(self) -> int:
        return self._child.pid

    def threads(self) -> int:
        return Target(self.pid).threads()

    def forget(self) -> None:
        """What it finds from now on is new."""
        self._shared[1] = 0

    @property
    def found(self) -> int:
        return self._shared[1]

    def must_go_on(self) -> None:
        """Waits until its main thread has done something more."""
        deadline = time.perf_counter() + DEADLINE_SECONDS
        assert self._child.stdin is not None
        before = self._shared[0]
        # One that waits does so for a line. None of the others reads it.
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(b"\n")
        while self._shared[0] == before:
            if self._child.poll() is not None:
                raise NoAnswer("the target died", outcome="kills it")
            if time.perf_counter() > deadline:
                raise NoAnswer("the target hangs", outcome="hangs it")
            time.sleep(0.0002)

    def beside(self, argv: Sequence[str | Path], environ: Mapping[str, str], *, answers: int | None = None) -> Done:
        """Runs a command that does something to this target, until it ends, the target dies, or time is up."""
        started = time.perf_counter()
        # Without a terminal, wherever the bench is run: one of the tools would talk to it.
        command = subprocess.Popen(
            argv,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert command.stdout is not None
        answers = command.stdout.fileno() if answers is None else answers
        try:
            answered_seconds = self._watch(command.pid, answers, started)
            wall_seconds = time.perf_counter() - started
            # What a pipe holds: longer answers are nobody's.
            answer = os.read(answers, 4096) if answered_seconds is not None else b""
            stdout = answer + command.stdout.read()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL)
            command.wait()
            command.stdout.close()
        if command.returncode != 0:
            self.must_go_on()
            raise NoAnswer(f"status {command.returncode}: {argv}", outcome="fails")
        return Done(wall_seconds, stdout, answer, answered_seconds)

    def _watch(self, command_pid: int, answers: int, started: float) -> float | None:
        """Returns when the command has ended; the seconds until the first answer."""
        answered_seconds = None
        with _pidfd(command_pid) as command, _pidfd(self.pid) as target:
            watched = select.poll()
            for descriptor in (command, target, answers):
                watched.register(descriptor, select.POLLIN)
            while True:
                left_seconds = started + DEADLINE_SECONDS - time.perf_counter()
                events = dict(watched.poll(max(left_seconds, 0) * 1e3))
                if answers in events:
                    watched.unregister(answers)
                    if events[answers] & select.POLLIN:
                        answered_seconds = time.perf_counter() - started
                if target in events:
                    raise NoAnswer("the target died", outcome="kills it")
                if command in events:
                    return answered_seconds
                if not events:
                    raise NoAnswer("the command does not end", outcome="hangs")


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
