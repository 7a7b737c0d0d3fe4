"""Every figure of memory and collectives: how much slower programs are while they are recorded."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from clients import NoAnswer
from environments import ROOT
from peers import Peer
from table import Budget, Row

HEAP = Budget("≤ 1.10", 1.10)
OPERATION = Budget("≤ 2.5 µs", 2.5)
COVERAGE = Budget("none", 0)
COLLECTIVES = {
    "call": "collective recorded, in a call",
    "ddp": "… as DDP asks for it",
    "backlog": "… beside 1,024 that go on",
}


def memory_rows(ours: Peer) -> list[Row]:
    """Ratios of loops that allocate."""
    told = json.loads(_printed([ours.python, "-B", ROOT / "benches/memory_target.py"], dict(ours.environ)))
    return [
        Row(
            f"heap sampled, {name}",
            "×",
            {"ours": times["ours"] / times["plain"], "tracemalloc": times["tracemalloc"] / times["plain"]},
            "CPU time, best of 9 turns",
            HEAP,
        )
        for name, times in told.items()
    ]


def collectives_rows(ours: Peer, torch: Path) -> list[Row]:
    """Microseconds that are added to an operation, and how many of DDP's are not seen."""
    rows = []
    for kind, figure in COLLECTIVES.items():
        with _one_rank(ours, torch, kind) as (child, told):
            plain, added, others = (told[name] for name in ("plain", "added", "others"))
            how = (
                f"beside {plain[1]:.1f} µs; median of pairs, half of them {added[0]:.1f} to {added[2]:.1f}; "
                f"CPU time of the thread that asks, others {others[1]:+.1f}"
            )
            rows.append(Row(figure, "µs", {"ours": added[1]}, how, OPERATION))
            if "made" in told:
                rows.append(_coverage(ours, child.pid, told))
            child.kill()
    return rows


@contextmanager
def _one_rank(ours: Peer, torch: Path, kind: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A job of one rank that has measured itself, and waits."""
    package = next((ours.python.parent.parent / "lib").glob("python*/site-packages"))
    environ = {**ours.environ, "PYTHONPATH": str(package), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    argv = [torch, "-B", ROOT / "benches/collectives_target.py", kind]
    with subprocess.Popen(argv, env=environ, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise NoAnswer("the job of one rank did not work")
        yield child, json.loads(line)


def _coverage(ours: Peer, pid: int, told: dict[str, Any]) -> Row:
    first, last = told["before"], told["before"] + told["made"]
    sql = (
        "SELECT count(DISTINCT seq) AS seen FROM python.collectives "
        f"WHERE state = 'enqueued' AND seq >= {first} AND seq < {last}"
    )
    query = [ours.python.parent / "probing", "-t", str(pid), "query", "--json", sql]
    [row] = json.loads(_printed(query, dict(ours.environ)))
    unseen = told["made"] - row["seen"]
    return Row("collectives of DDP not seen", "", {"ours": unseen}, f"of {told['made']}", COVERAGE, compares=False)


def memory_figures(ours: Peer) -> list[tuple[str, partial[list[Row]]]]:
    return [("loops that allocate", partial(memory_rows, ours))]


def collectives_figures(ours: Peer, torch: Path) -> list[tuple[str, partial[list[Row]]]]:
    return [("operations of a process group", partial(collectives_rows, ours, torch))]


def _printed(argv: list[object], environ: dict[str, str]) -> str:
    done = subprocess.run([str(word) for word in argv], env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoAnswer(done.stderr.strip()[-500:])
    return done.stdout
