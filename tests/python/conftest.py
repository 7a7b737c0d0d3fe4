"""Targets for the tests of the installed package: real processes, prepared or not, apart from everybody else's."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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
