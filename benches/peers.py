"""What is compared: each peer in its own environment, addressed in its own way."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clients import Client, FramedClient, HttpClient, NoAnswer
from dap import DapClient
from environments import ROOT
from processes import Spent, Target, run, target

IDLE = ROOT / "tests/targets/idle.py"
DAP = ROOT / "benches/dap.py"
# All that a process gets of this one's environment: whoever runs the bench may have PROBING or PYTHONPATH set.
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
ENVIRON = {name: os.environ[name] for name in PASSED_ON if name in os.environ}


@dataclass(frozen=True)
class Peer:
    name: str
    folder: Path
    library_name: str
    environ: dict[str, str]
    dial: Callable[[int], Client]

    @classmethod
    def ours(cls, folder: Path, runtime_dir: Path) -> "Peer":
        """Ours. It meets its targets in a folder of the bench, apart from everybody else's."""
        environ = ENVIRON | {"PROBING_DIR": str(runtime_dir)}
        return cls("ours", folder, "_probe.abi3.so", environ, lambda pid: FramedClient(runtime_dir, pid))

    @classmethod
    def older(cls, folder: Path) -> "Peer":
        return cls("older", folder, "_core.abi3.so", ENVIRON, HttpClient)

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    @property
    def version(self) -> str:
        return self._ask("from importlib.metadata import version; print(version('probing'))")

    @property
    def library(self) -> Path:
        """The library that is loaded into targets."""
        (path,) = self.folder.glob(f"lib/python3*/site-packages/probing/{self.library_name}")
        return path

    def python_spent(self, *arguments: str | Path, probed: bool) -> Spent:
        """Runs a program to its end."""
        return run([self.python, *arguments], self._environ(probed=probed))

    def command_spent(self, *arguments: str) -> Spent:
        """Runs the peer's `probing`."""
        return run([self.folder / "bin/probing", *arguments], self.environ)

    def target(self, *, probed: bool) -> contextlib.AbstractContextManager[Target]:
        """Starts a program that idles."""
        return target([self.python, IDLE], self._environ(probed=probed))

    @contextlib.contextmanager
    def connection(self, to: Target) -> Iterator[Client]:
        client = self.dial(to.pid)
        try:
            yield client
        finally:
            client.close()

    def evaluated(self, to: Target, code: str, length: int = 0) -> Spent:
        """Evaluates by a command that does only this; `length` is how much the code prints."""
        return self.command_spent("-t", str(to.pid), "eval", code)

    def evaluate_anew(self, to: Target) -> None:
        """One connection, one eval."""
        with self.connection(to) as client:
            if (value := client.evaluate("1")) != "1":
                raise NoAnswer(f"1 is {value}")

    def _environ(self, *, probed: bool) -> dict[str, str]:
        return self.environ | ({"PROBING": "1"} if probed else {})

    def _ask(self, code: str) -> str:
        return self.python_spent("-c", code, probed=False).stdout.decode().strip()


@dataclass(frozen=True)
class Debugpy(Peer):
    """Its server is in the target, its adapter beside it. It has no command: the bench brings the client."""

    # Where each target listens.
    ports: dict[int, int]

    @classmethod
    def of(cls, folder: Path) -> "Debugpy":
        ports: dict[int, int] = {}
        return cls("debugpy", folder, "", ENVIRON, lambda pid: DapClient(ports[pid]), ports)

    @property
    def version(self) -> str:
        return self._ask("from importlib.metadata import version; print(version('debugpy'))")

    @contextlib.contextmanager
    def target(self, *, probed: bool) -> Iterator[Target]:
        port = _free_port()
        listening = ("-Xfrozen_modules=off", "-m", "debugpy", "--listen", f"127.0.0.1:{port}") if probed else ()
        with target([self.python, *listening, IDLE], ENVIRON) as started:
            self.ports[started.pid] = port
            yield started

    def evaluated(self, to: Target, code: str, length: int = 0) -> Spent:
        return run([self.python, DAP, str(self.ports[to.pid]), code, str(length)], ENVIRON)

    def command_spent(self, *arguments: str) -> Spent:
        raise NoAnswer("it has no command", outcome="cannot")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Targets(contextlib.ExitStack):
    """One probed target of each peer, started when first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._started: dict[str, Target] = {}

    def of(self, peer: Peer) -> Target:
        if peer.name not in self._started:
            self._started[peer.name] = self.enter_context(peer.target(probed=True))
        return self._started[peer.name]
