"""What is compared at SQL: engines that stay, are asked one query after the other, and tell what each cost."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clients import NoAnswer
from environments import DUCKDB, ROOT, pinned
from peers import ENVIRON, Peer
from processes import Target, target

TARGET = ROOT / "benches/sql_target.py"
DUCKDB_PROGRAM = ROOT / "benches/sql_duckdb.py"


class Engine(Protocol):
    """One engine with the table in it."""

    name: str
    table: str

    def cpu_millis(self, sql: str) -> float:
        """CPU of all its threads for one query, from question to last row."""


@dataclass(frozen=True)
class Ours:
    """`probing connect`, which reads what the target has recorded."""

    process: "subprocess.Popen[bytes]"
    name: str = "ours"
    table: str = "steps"

    def cpu_millis(self, sql: str) -> float:
        before = self._cpu_nanos()
        self.ask(sql)
        return (self._cpu_nanos() - before) / 1e6

    def ask(self, sql: str) -> list[list[object]]:
        """Its rows."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = json.dumps({"id": 1, "op": "query", "sql": sql}).encode() + b"\n"
        self.process.stdin.write(line)
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if answer["event"] != "table":
            raise NoAnswer(f"{sql}: {answer}")
        rows: list[list[object]] = answer["rows"]
        return rows

    def _cpu_nanos(self) -> int:
        """Of threads that live: those of the engine do. The thread that took the request has hardly any."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


@dataclass(frozen=True)
class DuckDb:
    process: "subprocess.Popen[bytes]"
    name: str = "DuckDB"
    table: str = "steps"

    def cpu_millis(self, sql: str) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(sql.encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise NoAnswer(f"no answer: {sql}")
        return float(answer)


def recorded(peer: Peer) -> contextlib.AbstractContextManager[Target]:
    """A program that has recorded the table."""
    return target([peer.python, TARGET], peer.environ | {"PROBING": "1"})


@contextlib.contextmanager
def ours(peer: Peer, of: Target) -> Iterator[Ours]:
    with _talk([peer.folder / "bin/probing", "-t", str(of.pid), "connect"], peer.environ) as process:
        yield Ours(process)


@contextlib.contextmanager
def duckdb(folder: Path) -> Iterator[DuckDb]:
    with _talk([folder / "bin/python", DUCKDB_PROGRAM], ENVIRON) as process:
        yield DuckDb(process)


def duckdb_version() -> str:
    return pinned(DUCKDB)


@contextlib.contextmanager
def _talk(command: list[str | Path], environ: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that says a first line when it is ready, and then answers each line with a line."""
    process = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            if not process.stdout.readline():
                raise NoAnswer(f"it did not start: {command}")
            yield process
        finally:
            process.stdin.close()
            process.kill()
