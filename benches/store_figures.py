"""Every figure of recording: what a row costs the program, what it takes, and how fast it is read from outside."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from environments import ROOT
from peers import ENVIRON
from processes import run
from table import Budget, Row

# What a training program records: five values, of which one is a text. The least CPU time of many short runs.
PROGRAM = """
import probing
from time import process_time

COUNT = 20_000

def least(work):
    times = []
    for _ in range(40):
        begin = process_time()
        work()
        times.append(process_time() - begin)
    return min(times) / COUNT * 1e9

def nothing():
    for i in range(COUNT):
        pass

def record():
    for i in range(COUNT):
        probing.record("train", step=i, loss=0.5, name="forward", ok=True, memory=i)

def event():
    for i in range(COUNT):
        probing.event("saved")

def span():
    for i in range(COUNT):
        with probing.span("step"):
            pass

loop = least(nothing)
for name, work in (("record", record), ("event", event), ("span", span)):
    print(name, least(work) - loop)
"""


@dataclass(frozen=True)
class StoreBench:
    python: Path
    runtime_dir: Path

    @cached_property
    def native(self) -> dict[str, float]:
        """What the crate's own program prints, built for release."""
        command = ["cargo", "run", "--quiet", "--release", "--package", "probing-store", "--example", "figures"]
        return _figures(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)

    def from_python(self) -> dict[str, float]:
        environ = {**ENVIRON, "PROBING_DIR": str(self.runtime_dir)}
        return _figures(run([self.python, "-c", PROGRAM], environ).stdout.decode())


def _figures(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in (line.split() for line in text.splitlines())}


def writing(bench: StoreBench) -> list[Row]:
    native, python = bench.native, bench.from_python()
    how = "CPU per row, six columns, 1 M rows"
    return [
        _row("write, Rust", "ns", native["write_ns"], f"{how}, least of 7", Budget("≤ 15 ns", 15)),
        _row("… first time", "ns", native["write_first_ns"], "the same, its memory is made meanwhile"),
        _row(
            "record(), Python",
            "ns",
            python["record"],
            "CPU per row of five values, loop taken off",
            Budget("≤ 300 ns", 300),
        ),
        _row("event(), Python", "ns", python["event"], "the same, without attributes"),
        _row("span(), Python", "ns", python["span"], "the same: two rows"),
        _row("bytes per row", "B", native["bytes_per_row"], "six columns, all that the ring takes"),
    ]


def reading(bench: StoreBench) -> list[Row]:
    native = bench.native
    how = "rows per CPU second into Arrow's layout, best of 7"
    return [
        _row("scan, two numbers", "M/s", native["scan_two_numbers"], f"{how} (≥ 200 M/s)"),
        _row("scan, two symbols", "M/s", native["scan_two_symbols"], "the same, as text"),
        _row("scan, all six", "M/s", native["scan_all_six"], "the same"),
    ]


def _row(figure: str, unit: str, value: float, how: str, budget: Budget | None = None) -> Row:
    return Row(figure, unit, {"ours": value}, how, budget, compares=False)


STORE_FIGURES: Sequence[tuple[str, Callable[[StoreBench], list[Row]]]] = (
    ("writing rows", writing),
    ("reading rows", reading),
)
