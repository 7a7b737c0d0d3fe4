"""Targets for the tests of the installed package: real processes, prepared or not, apart from everybody else's."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing import Probe, connect

TARGETS = Path(__file__).parent.parent / "targets"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A meeting place of this test's own. Short: the path of a socket has at most 107 bytes."""
    folder = tmp_path_factory.mktemp("p", numbered=True)
    folder.chmod(0o700)
    for variable in ("PROBING", "PROBING_TARGET"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PROBING_DIR", str(folder / "run"))


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program of ``tests/targets``, or any other, and returns when it is ready."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str | Path, **variables: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, TARGETS / program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(params=["prepared", "unprepared"])
def target(request: pytest.FixtureRequest, start: Start) -> "subprocess.Popen[str]":
    """A process that waits, with the probe in it and without."""
    return start("waiting.py", PROBING="1") if request.param == "prepared" else start("waiting.py")


@pytest.fixture
def probe(target: "subprocess.Popen[str]") -> Iterator[Probe]:
    with connect(pid=target.pid) as probe:
        yield probe


@pytest.fixture
def prepared(start: Start) -> Iterator[Probe]:
    """For what does not depend on how the probe came in."""
    with connect(pid=start("waiting.py", PROBING="1").pid) as probe:
        yield probe


def children() -> list[str]:
    """Processes that this one started and has not seen the end of."""
    folder = Path("/proc/self/task")
    return [child for task in folder.iterdir() for child in (task / "children").read_text().split()]


def threads_of_ours(pid: int) -> list[str]:
    """What of ours runs in a process: the probe, and a thread for each eval."""
    names = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end while one looks.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(task.joinpath("comm").read_text().strip())
    return sorted(name for name in names if name.startswith("probing"))


def wait_until(condition: Callable[[], bool]) -> None:
    """For what has no handshake. It fails when something hangs, never on a slow day."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def interrupt_when(name: str, probe: Probe) -> threading.Thread:
    """Ctrl-C in this process as soon as remote code has set the global ``name``."""

    def press() -> None:
        with connect(probe.pid) as other:
            wait_until(lambda: other.eval(f"{name!r} in globals()").value)
        os.kill(os.getpid(), signal.SIGINT)

    # Ignored where a shell has started the tests in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press)
    thread.start()
    return thread
