"""What is compared at SQL: engines that stay, are asked one query after the other, and tell what each cost."""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clients import NoAnswer
from environments import DUCKDB, ROOT, pinned
from peers import ENVIRON, Peer
from processes import Target, target
from sql_queries import QUERIES

TARGET = ROOT / "benches/sql_target.py"
DUCKDB_PROGRAM = ROOT / "benches/sql_duckdb.py"
OLDER_PROGRAM = ROOT / "benches/sql_older.py"
WORDS = {"table": "steps", "time": "ts"}
# The kind of clock that counts nanoseconds of CPU time.
SCHEDULED = 2
# Five columns that may be empty take more room than a process has by itself.
ROOM = {"PROBING_STORE_BYTES": "512M"}


class Engine(Protocol):
    """One engine with the table in it."""

    @property
    def name(self) -> str: ...

    @property
    def words(self) -> dict[str, str]:
        """What it calls the table, and the time of a row."""

    def cpu_millis(self, sql: str) -> float:
        """CPU of all its threads for one query, from question to last row."""


@dataclass(frozen=True)
class Ours:
    """`probing connect`, which reads what the target has recorded."""

    process: "subprocess.Popen[bytes]"
    name: str = "ours"

    @property
    def words(self) -> dict[str, str]:
        return WORDS

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
        """Of all its threads, those that have ended among them: the clock of the process, by its number."""
        return time.clock_gettime_ns((~self.process.pid << 3) | SCHEDULED)


@dataclass(frozen=True)
class Other:
    """A program that is told SQL line by line and tells what it cost."""

    name: str
    process: "subprocess.Popen[bytes]"
    words: dict[str, str]

    def cpu_millis(self, sql: str) -> float:
        return float(self._told(sql))

    def ask(self, sql: str) -> list[list[object]]:
        """Its rows, of an engine that tells them."""
        rows: list[list[object]] = json.loads(self._told(f"rows {sql}"))
        return rows

    def _told(self, sql: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(sql.encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode()
        if not answer or answer.startswith("error"):
            raise NoAnswer(f"{sql}: {answer or 'it ended'}", outcome="error" if answer else "it ended")
        return answer


class Disagreement(Exception):
    """Two engines gave different answers."""


def compare(ours: Ours, other: Other) -> None:
    """Both answer every query alike, or else no figure means anything. Times are apart: each has its own."""
    for words, sql in QUERIES.items():
        asked = sql.format(**WORDS | {"time": "step"})
        one, two = _normal(ours.ask(asked)), _normal(other.ask(asked))
        if one != two:
            raise Disagreement(
                f"{words}: {len(one)} rows of ours, {len(two)} of {other.name}, as {one[:3]} and {two[:3]}"
            )


def _normal(rows: list[list[object]]) -> list[list[str]]:
    """In an order, with numbers as both write them: some come as text because they are large."""
    return sorted([_cell(value) for value in row] for row in rows)


def _cell(value: object) -> str:
    try:
        return f"{float(str(value)):.9g}"
    except ValueError:
        return str(value)


def recorded(peer: Peer) -> contextlib.AbstractContextManager[Target]:
    """A program that has recorded the table."""
    return target([peer.python, TARGET], peer.environ | ROOM | {"PROBING": "1"})


@contextlib.contextmanager
def ours(peer: Peer, of: Target) -> Iterator[Ours]:
    with _talk([peer.folder / "bin/probing", "-t", str(of.pid), "connect"], peer.environ) as process:
        yield Ours(process)


@contextlib.contextmanager
def duckdb(folder: Path) -> Iterator[Other]:
    with _talk([folder / "bin/python", DUCKDB_PROGRAM], ENVIRON) as process:
        yield Other("DuckDB", process, WORDS)


@contextlib.contextmanager
def older(peer: Peer) -> Iterator[Other]:
    """The older probing, asked inside of the program that recorded: that is where its engine is."""
    with _talk([peer.python, OLDER_PROGRAM], peer.environ | {"PROBING": "1"}) as process:
        yield Other(peer.name, process, {"table": "python.steps", "time": "timestamp"})


def duckdb_version() -> str:
    return pinned(DUCKDB)


@contextlib.contextmanager
def _talk(command: list[str | Path], environ: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that says a first line when it is ready, and then answers each line with a line."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environ, **pipes)
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
