"""Real processes: a target that says when it is ready, a command that is timed, and what `/proc` tells of them."""

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clients import PATIENCE_SECONDS, NoAnswer

MEGA = 1e6


@dataclass(frozen=True)
class Spent:
    """What a command cost, from its start to its end."""

    cpu_seconds: float
    wall_seconds: float
    stdout: bytes


def run(argv: Sequence[str | Path], environ: Mapping[str, str]) -> Spent:
    """Runs a command to its end. Its CPU time is the kernel's account of that one process."""
    started = time.perf_counter()
    child = subprocess.Popen(
        argv, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    impatience = threading.Timer(PATIENCE_SECONDS, child.kill)
    impatience.start()
    assert child.stdout is not None
    with child.stdout:
        stdout = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall_seconds = time.perf_counter() - started
    impatience.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise NoAnswer(f"status {child.returncode}: {argv}")
    return Spent(usage.ru_utime + usage.ru_stime, wall_seconds, stdout)


@contextlib.contextmanager
def target(argv: Sequence[str | Path], environ: Mapping[str, str]) -> Iterator["Target"]:
    """A program that prints `ready`; it ends when its input does."""
    with subprocess.Popen(
        argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            if child.stdout.readline() != b"ready\n":
                raise NoAnswer(f"the target did not start: {argv}")
            # Some have the program print what evaluated code prints.
            threading.Thread(target=child.stdout.read, daemon=True).start()
            yield Target(child.pid)
        finally:
            child.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(PATIENCE_SECONDS)
            child.kill()


@dataclass(frozen=True)
class Target:
    pid: int

    def rss(self) -> float:
        """In MB. From `smaps_rollup`: the number in `status` is off by up to a few hundred kB."""
        return self._kilobytes("smaps_rollup", "Rss")

    def peak_rss(self) -> float:
        """In MB, since the start or `forget_peak`."""
        return self._kilobytes("status", "VmHWM")

    def forget_peak(self) -> None:
        self._file("clear_refs").write_text("5")

    def cpu_nanos(self) -> int:
        """Of all its threads that live, exactly."""
        return sum(int((task / "schedstat").read_text().split()[0]) for task in self._file("task").iterdir())

    def threads(self) -> int:
        return len(list(self._file("task").iterdir()))

    def wake_ups(self) -> int:
        """How often any of its threads began to wait of its own accord."""
        statuses = [(task / "status").read_text() for task in self._file("task").iterdir()]
        return sum(_number(status, "voluntary_ctxt_switches") for status in statuses)

    def _kilobytes(self, file: str, name: str) -> float:
        return _number(self._file(file).read_text(), name) * 1024 / MEGA

    def _file(self, name: str) -> Path:
        return Path(f"/proc/{self.pid}/{name}")


def _number(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+)", text, re.MULTILINE)
    if found is None:
        raise NoAnswer(f"the kernel does not tell {name}")
    return int(found[1])
