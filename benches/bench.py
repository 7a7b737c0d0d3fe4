"""Prepares the peers, takes every figure, prints the table. Never fails on a time: who reads it judges.

Words go to stderr, the table to stdout.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from attach_figures import ATTACH_FIGURES, AttachBench
from attach_tools import hypno_tool, madbg_tool, older_tool, our_tool
from clients import NoAnswer
from environments import (
    DEBUGPY,
    DOWHEN,
    DUCKDB,
    HYPNO,
    MADBG,
    OLDER,
    PY_SPY,
    PYSTACK,
    ROOT,
    VIZTRACER,
    OnePython,
    pinned,
    prepare_bare,
    prepare_debuggers,
    prepare_ours,
    prepare_peer,
    prepare_torch,
)
from figures import EVAL_FIGURES, FIGURES, Bench
from memory_figures import collectives_figures, memory_figures
from peers import ENVIRON, Debugpy, Peer
from processes import run
from remote_figures import REMOTE_FIGURES, RemoteBench
from sql_figures import SQL_FIGURES, SqlBench
from sql_tools import duckdb_version
from stacks_figures import STACKS_FIGURES, StacksBench
from stacks_tools import our_stacks, py_spy, pystack
from stops_figures import stops_figures
from store_figures import STORE_FIGURES, StoreBench
from table import Row, render
from torch_figures import TorchBench, torch_figures
from trace_figures import trace_figures

PARTS = (
    "probe",
    "eval",
    "attach",
    "stacks",
    "store",
    "sql",
    "remote",
    "stops",
    "trace",
    "torch",
    "memory",
    "collectives",
)


def main(arguments: Sequence[str]) -> int:
    if unknown := set(arguments) - set(PARTS):
        print(f"error: no such part: {' '.join(unknown)}\nhint: the parts are: {' '.join(PARTS)}", file=sys.stderr)
        return 2
    started = time.monotonic()
    chosen = [part for part in PARTS if part in arguments or not arguments]
    # Short: the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as meeting:
        try:
            bare = prepare_bare()
            sections = _prepare(bare, Path(meeting) / "d", chosen)
        except subprocess.CalledProcessError as error:
            print(f"error: cannot prepare the environments, status {error.returncode}: {error.cmd[0]}", file=sys.stderr)
            return 1
        try:
            python = run([bare, "--version"], ENVIRON).stdout.decode().strip()
            texts = [section.taken() for section in sections]
        except (NoAnswer, OSError) as error:
            print(f"error: ours does not work: {error}", file=sys.stderr)
            return 1
    print(f"\n{_machine()}, {python}", *texts, COMMON_NOTES, sep="\n")
    print(f"Taken in {time.monotonic() - started:.0f} s, preparation included.")
    return 0


COMMON_NOTES = """
ours: built for release, as `pip install .` does. older: probing from PyPI, with ipykernel, which its eval needs.
✓ ✗: within the budget, or not; a busy machine adds noise. All take turns within one run."""

PROBE_NOTES = """\
ratio: older / ours. extra: a probed target minus an unprobed one of the same environment."""

EVAL_NOTES = """\
ratio: best other / ours. debugpy: its server listens in the target, and evaluates in a namespace of its own; it has no
command, so a small client in Python stands for one. What its evals print the program prints, too."""

ATTACH_NOTES = """\
ratio: best other / ours. Each attach is the first to a fresh process with nothing but Python.
eval 1: until the answer is there; hypno, which brings none back, has the code write one to a pipe.
busy main: it looks at the clock in a tight loop; the longest gap between two looks has the wait for the GIL in it.
no answer in 10 s: hangs. A tool that fails once has no figure in that row; one that hung is not counted further.
madbg wants its package in the target, whose main thread it otherwise ends with an error, and a terminal."""


STACKS_NOTES = """\
ratio: best other / ours. threads × frames; main looks at the clock in a tight loop, the others wait, each frame has
five variables. pause: the longest gap between two looks. py-spy nb: --nonblocking. cannot: it has no such option.
The whole command is timed, from its start to its end; sampling has its start and the writing of the file in it."""


STORE_NOTES = """\
CPU time, not time on the clock. Reading copies columns out of the files of the target, which is not asked."""

SQL_NOTES = """\
ratio: best other / ours. A million rows of six columns: ours in what a living program has recorded, DuckDB's in a table
of its own in memory, two threads, the older one's in the program itself, where its engine runs. Each query is asked in
turn by engines that stay; their rows are fetched, too. error: it has no answer to that query."""

REMOTE_NOTES = """\
local: by pid. plain, TLS: through an agent of the same user, on a loopback address."""


STOPS_NOTES = """\
How many times as long a loop takes with one breakpoint in it, of which nothing is seen; ratio: best other / ours. Each
is compared with itself without one, in the same process. dowhen needs Python 3.12; pdb has sys.monitoring from 3.14."""


TRACE_NOTES = """\
ratio: best other / ours. CPU time, the least of three processes, each of which takes the least of several runs, after
runs that are not counted. A call is two events of ours, each with a row: call and return; both are one record, written
when it is called. viztracer's event is its record: one a call, written when it returns. Both figures are shown."""
MEMORY_NOTES = """\
How many times as long loops that do little else than allocate take; ratio: tracemalloc / ours. All in one process."""
COLLECTIVES_NOTES = """\
gloo with one rank: what is added to each operation. seen: of the operations that DDP makes from C++, by its numbers."""


TORCH_NOTES = """\
How many times as much CPU a step takes; ratio: best other / ours. hooks: forward hooks in Python that only look at the
clock. older: as it is when it is switched on; it records one module of each step. Each beside a step without."""


@dataclass(frozen=True)
class Section:
    """One table."""

    heading: str
    versions: dict[str, str]
    figures: Sequence[tuple[str, Callable[[], list[Row]]]]
    notes: str

    def taken(self) -> str:
        """Takes its figures; the text."""
        rows = []
        for words, figure in self.figures:
            print(f"==> {words}", file=sys.stderr, flush=True)
            rows += figure()
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"\n{self.heading}: {versions}\n\n{render(rows, list(self.versions))}\n\n{self.notes}"


def _prepare(bare: Path, runtime_dir: Path, chosen: Sequence[str]) -> list[Section]:
    """The environments, and what is to be measured in them."""
    ours = Peer.ours(prepare_ours(), runtime_dir)
    older = None
    if {"probe", "eval", "attach", "sql"} & set(chosen) and (folder := prepare_peer("older-probing", OLDER)):
        older = Peer.older(folder)
    sections = []
    both = [ours, *([older] if older else [])]
    if "probe" in chosen:
        sections.append(_peers_section("The probe", both, bare, FIGURES, PROBE_NOTES))
    if "eval" in chosen:
        debugpy = prepare_peer("debugpy", DEBUGPY)
        peers = [*both, *([Debugpy.of(debugpy)] if debugpy else [])]
        sections.append(_peers_section("Eval", peers, bare, EVAL_FIGURES, EVAL_NOTES))
    if "attach" in chosen:
        hypno, madbg = prepare_peer("hypno", HYPNO), prepare_peer("madbg", MADBG)
        tools = [
            our_tool(ours),
            *([hypno_tool(hypno)] if hypno else []),
            *([older_tool(older)] if older else []),
            *([madbg_tool(madbg)] if madbg else []),
        ]
        attach_bench = AttachBench(bare, tools, ours.environ)
        versions = {tool.name: tool.version for tool in tools}
        figures = [(words, partial(take, attach_bench)) for words, take in ATTACH_FIGURES]
        sections.append(Section("Attach", versions, figures, ATTACH_NOTES))
    if "stacks" in chosen:
        spy, stack = prepare_peer("py-spy", PY_SPY), prepare_peer("pystack", PYSTACK)
        stack_tools = [
            our_stacks(ours),
            *([py_spy(spy, blocking=True), py_spy(spy, blocking=False)] if spy else []),
            *([pystack(stack)] if stack else []),
        ]
        stacks_bench = StacksBench(bare, stack_tools)
        versions = {tool.name: tool.version for tool in stack_tools}
        figures = [(words, partial(take, stacks_bench)) for words, take in STACKS_FIGURES]
        sections.append(Section("Stacks", versions, figures, STACKS_NOTES))
    if "store" in chosen:
        store_bench = StoreBench(ours.python, runtime_dir)
        figures = [(words, partial(take, store_bench)) for words, take in STORE_FIGURES]
        sections.append(Section("Recording", {ours.name: ours.version}, figures, STORE_NOTES))
    if "sql" in chosen:
        folder = prepare_peer("duckdb", DUCKDB)
        versions = {
            ours.name: ours.version,
            **({"DuckDB": duckdb_version()} if folder else {}),
            **({older.name: older.version} if older else {}),
        }
        figures = [(words, partial(take, SqlBench(ours, folder, older))) for words, take in SQL_FIGURES]
        sections.append(Section("SQL", versions, figures, SQL_NOTES))
    if "remote" in chosen:
        versions = dict.fromkeys(("local", "plain", "TLS"), ours.version)
        figures = [(words, partial(take, RemoteBench(ours))) for words, take in REMOTE_FIGURES]
        sections.append(Section("Through an agent", versions, figures, REMOTE_NOTES))
    if "stops" in chosen:
        for version, python in prepare_debuggers().items():
            versions = {"ours": ours.version, "debugpy": pinned(DEBUGPY), "dowhen": pinned(DOWHEN), "pdb": version}
            figures = stops_figures(OnePython(version, python, ours.environ))
            sections.append(Section(f"Breakpoints, Python {version}", versions, figures, STOPS_NOTES))
    if "trace" in chosen:
        for version, python in prepare_debuggers().items():
            versions = {"ours": ours.version, "viztracer": pinned(VIZTRACER), "settrace": version}
            figures = trace_figures(OnePython(version, python, ours.environ))
            sections.append(Section(f"Tracing, Python {version}", versions, figures, TRACE_NOTES))
    if "torch" in chosen:
        with_ours, with_older = prepare_torch("torch-ours", None), prepare_torch("torch-older-probing", OLDER)
        if with_ours:
            versions = {"ours": ours.version, "hooks": "of torch", "older": pinned(OLDER)}
            figures = torch_figures(TorchBench(with_ours, with_older, ours.environ))
            sections.append(Section("Training", versions, figures, TORCH_NOTES))
        else:
            print("==> no torch: get it with scripts/torch-environment; going on without it", file=sys.stderr)
    if "memory" in chosen:
        versions = {"ours": ours.version, "tracemalloc": "of Python's"}
        sections.append(Section("Memory", versions, memory_figures(ours), MEMORY_NOTES))
    if "collectives" in chosen:
        torch = subprocess.run(
            [ROOT / "scripts/torch-environment", "--find"], capture_output=True, text=True, check=False
        )
        if torch.returncode == 0:
            figures = collectives_figures(ours, Path(torch.stdout.strip()))
            sections.append(Section("Collectives", {"ours": ours.version}, figures, COLLECTIVES_NOTES))
        else:
            print("==> collectives are left out: scripts/torch-environment installs torch", file=sys.stderr)
    return sections


def _peers_section(
    heading: str,
    peers: Sequence[Peer],
    bare: Path,
    taken: Sequence[tuple[str, Callable[[Bench], list[Row]]]],
    notes: str,
) -> Section:
    bench = Bench(bare_python=bare, peers=peers)
    versions = {peer.name: peer.version for peer in peers}
    return Section(heading, versions, [(words, partial(take, bench)) for words, take in taken], notes)


def _machine() -> str:
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    load = os.getloadavg()[0]
    return f"{model}, {os.cpu_count()} cores (load {load:.1f}), Linux {platform.release()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
