"""Every figure of memory and collectives: how much slower programs are while they are recorded."""

import json
import subprocess
from functools import partial
from pathlib import Path

from clients import NoAnswer
from environments import ROOT
from peers import Peer
from table import Budget, Row

HEAP = Budget("≤ 1.10", 1.10)
OPERATION = Budget("≤ 2.5 µs", 2.5)
COVERAGE = Budget("100 %", 100)


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
    """Microseconds of an operation, and how many of DDP's are seen."""
    package = next((ours.python.parent.parent / "lib").glob("python*/site-packages"))
    environ = {**ours.environ, "PYTHONPATH": str(package), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    argv = [torch, "-B", ROOT / "benches/collectives_target.py"]
    with subprocess.Popen(argv, env=environ, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise NoAnswer("the job of one rank did not work")
        told = json.loads(line)
        first, last = told["before"], told["before"] + told["made"]
        sql = (
            "SELECT count(DISTINCT seq) AS seen FROM python.collectives "
            f"WHERE state = 'enqueued' AND seq >= {first} AND seq < {last}"
        )
        command = ours.python.parent / "probing"
        query = [command, "-t", str(child.pid), "query", "--json", sql]
        [row] = json.loads(_printed(query, environ))
        child.kill()
    extra = (told["traced"] - told["plain"]) * 1e6
    share = 100 * row["seen"] / told["made"]
    return [
        Row(
            "collective recorded",
            "µs",
            {"ours": extra},
            f"CPU time of the calling thread, beside {told['plain'] * 1e6:.0f} µs; best of 9 turns",
            OPERATION,
        ),
        Row(
            "collectives of DDP seen",
            "%",
            {"ours": share},
            f"{row['seen']} of {told['made']}",
            COVERAGE,
            compares=False,
        ),
    ]


def memory_figures(ours: Peer) -> list[tuple[str, partial[list[Row]]]]:
    return [("loops that allocate", partial(memory_rows, ours))]


def collectives_figures(ours: Peer, torch: Path) -> list[tuple[str, partial[list[Row]]]]:
    return [("operations of a process group", partial(collectives_rows, ours, torch))]


def _printed(argv: list[object], environ: dict[str, str]) -> str:
    done = subprocess.run([str(word) for word in argv], env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoAnswer(done.stderr.strip()[-500:])
    return done.stdout
