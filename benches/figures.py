"""Every figure of the table, and how it is taken."""

import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clients import Client, NoAnswer
from peers import ENVIRON, Peer, Targets
from processes import MEGA, run
from samples import Sample, in_turn
from table import Budget, Row

FIB = Path(__file__).parent / "fib.py"
# A loop within an expression: the older one runs a bare block only at the next eval.
TEN_MEGABYTES = "exec(\"for i in range(10_000): print('x' * 999)\")"
IDLE_SECONDS = 2


@dataclass(frozen=True)
class Bench:
    bare_python: Path
    peers: Sequence[Peer]


def library(bench: Bench) -> list[Row]:
    values = {peer.name: _stripped_size(peer.library) / MEGA for peer in bench.peers}
    return [Row("library in the target", "MB", values, "size of the file after strip", Budget("≤ 3 MB", 3))]


def _stripped_size(path: Path) -> int:
    strip = shutil.which("strip")
    if strip is None:
        return path.stat().st_size
    with tempfile.NamedTemporaryFile() as stripped:
        subprocess.run([strip, "-o", stripped.name, path], check=True)
        return Path(stripped.name).stat().st_size


def idling(bench: Bench) -> list[Row]:
    """Threads and memory of a target that does nothing, and what evals leave behind."""

    def unused(peer: Peer) -> Sample:
        with peer.target(probed=False) as plain, peer.target(probed=True) as probed:
            return {"threads": probed.threads() - plain.threads(), "rss": probed.rss() - plain.rss()}

    def used(peer: Peer) -> Sample:
        with peer.target(probed=False) as plain, peer.target(probed=True) as probed:
            peer.evaluate_anew(probed)
            rss_after_1 = probed.rss() - plain.rss()
            for _ in range(99):
                peer.evaluate_anew(probed)
            rss_after_100 = probed.rss() - plain.rss()
            time.sleep(0.1)  # a thread that served the last eval may be on its way out
            return {"threads": probed.threads() - plain.threads(), "rss_1": rss_after_1, "rss_100": rss_after_100}

    idle, after_use = in_turn(bench.peers, 5, unused), in_turn(bench.peers, 5, used)
    threads = "/proc/PID/task, median of 5 targets"
    rss = "smaps_rollup, median of 5 targets"
    return [
        Row("extra threads, idle", "", idle.middle("threads"), threads, Budget("exactly 1", 1)),
        Row("… after 100 evals", "", after_use.middle("threads"), threads, Budget("exactly 1", 1)),
        Row("extra RSS, idle", "MB", idle.middle("rss"), rss),
        Row("… after 1 eval", "MB", after_use.middle("rss_1"), rss),
        Row("… after 100 evals", "MB", after_use.middle("rss_100"), rss, Budget("≤ 4 MB", 4)),
    ]


def wake_ups(bench: Bench) -> list[Row]:
    """All targets idle at the same time, each watched for the same seconds."""
    with Targets() as targets:

        def answer_once(peer: Peer) -> Sample:
            peer.evaluate_anew(targets.of(peer))
            return {}

        def count(peer: Peer) -> Sample:
            return {"so_far": targets.of(peer).wake_ups()}

        in_turn(bench.peers, 1, answer_once)
        time.sleep(0.5)
        before = in_turn(bench.peers, 1, count).best("so_far")
        time.sleep(IDLE_SECONDS)
        after = in_turn(bench.peers, 1, count).best("so_far")
    values = {name: count - before[name] for name, count in after.items() if name in before}
    how = "voluntary switches, after an eval"
    return [Row(f"wake-ups in {IDLE_SECONDS} s, idle", "", values, how, Budget("none", 0))]


def start_up(bench: Bench) -> list[Row]:
    """`python -c pass`, each time beside one in an environment without any package."""

    def extra_millis(peer: Peer, *, probed: bool) -> float:
        bare = run([bench.bare_python, "-c", "pass"], ENVIRON).cpu_seconds
        return (peer.python_spent("-c", "pass", probed=probed).cpu_seconds - bare) * 1e3

    def probed(peer: Peer) -> Sample:
        return {"millis": extra_millis(peer, probed=True)}

    def unset(peer: Peer) -> Sample:
        return {"millis": extra_millis(peer, probed=False)}

    in_turn(bench.peers, 1, probed)  # writes the bytecode
    started = in_turn(bench.peers, 25, probed).middle("millis")
    # So little that only many pairs show it.
    not_started = in_turn(bench.peers, 150, unset).middle("millis")
    return [
        Row("start-up, PROBING=1", "ms", started, "CPU of -c pass, 25 pairs with bare", Budget("≤ 15 ms", 15)),
        Row("start-up, PROBING unset", "ms", not_started, "CPU of -c pass, 150 pairs with bare", Budget("≤ 1 ms", 1)),
    ]


def python_calls(bench: Bench) -> list[Row]:
    def sample(peer: Peer) -> Sample:
        return {
            "plain": float(peer.python_spent(FIB, probed=False).stdout),
            "probed": float(peer.python_spent(FIB, probed=True).stdout),
        }

    samples = in_turn(bench.peers, 10, sample)
    plain = samples.best("plain")
    ratios = {name: value / plain[name] for name, value in samples.best("probed").items()}
    return [Row("fib(25), probed/unprobed", "x", ratios, "CPU in the target, best of 10 x 12", Budget("≈ 1.00", 1.03))]


def commands(bench: Bench) -> list[Row]:
    """The whole command: its start, the connection, the answer, its end."""
    with Targets() as targets:

        def sample(peer: Peer) -> Sample:
            evaluated = peer.evaluated(targets.of(peer), "1")
            if evaluated.stdout != b"1\n":
                raise NoAnswer(f"1 is {evaluated.stdout!r}")
            return {"cpu": evaluated.cpu_seconds * 1e3, "wall": evaluated.wall_seconds * 1e3}

        def list_sample(peer: Peer) -> Sample:
            return {"wall": peer.command_spent("list").wall_seconds * 1e3}

        in_turn(bench.peers, 1, sample)  # the older one's first eval starts a kernel
        samples = in_turn(bench.peers, 20, sample)
        listed = in_turn(bench.peers, 20, list_sample)
    return [
        Row(
            "probing eval 1, CPU", "ms", samples.cells("cpu"), "the command's own, median of 20", Budget("≤ 15 ms", 15)
        ),
        Row("probing eval 1, wall", "ms", samples.cells("wall"), "command to its end, median of 20"),
        Row("probing list, wall", "ms", listed.cells("wall"), "command to its end, median of 20"),
    ]


def round_trips(bench: Bench) -> list[Row]:
    targets = Targets()

    def micros(client: Client) -> float:
        started = time.perf_counter()
        client.evaluate("1")
        return (time.perf_counter() - started) * 1e6

    def sample(peer: Peer) -> Sample:
        with peer.connection(targets.of(peer)) as client:
            client.evaluate("1")
            return {"micros": statistics.median(micros(client) for _ in range(30))}

    with targets:
        samples = in_turn(bench.peers, 15, sample)
    how = "socket round trip, median of 15 x 30"
    return [Row("eval, open connection", "µs", samples.cells("micros"), how, Budget("≤ 300 µs", 300))]


def output(bench: Bench) -> list[Row]:
    def sample(peer: Peer) -> Sample:
        with peer.target(probed=True) as target:
            peer.evaluate_anew(target)
            before = target.rss()
            target.forget_peak()
            printed = peer.evaluated(target, TEN_MEGABYTES, 10_000_000)
            if len(printed.stdout) < 10_000_000:
                raise NoAnswer(f"{len(printed.stdout)} bytes came")
            return {"wall": printed.wall_seconds, "peak": target.peak_rss() - before, "kept": target.rss() - before}

    samples = in_turn(bench.peers, 5, sample)
    return [
        Row(
            "eval printing 10 MB, wall",
            "s",
            samples.cells("wall"),
            "10,000 lines, median of 5",
            Budget("≤ 0.3 s", 0.3),
        ),
        Row("… growth of RSS, peak", "MB", samples.cells("peak"), "VmHWM minus RSS before, same runs"),
        Row("… growth of RSS, kept", "MB", samples.cells("kept"), "RSS after minus before, same runs"),
    ]


FIGURES: Sequence[tuple[str, Callable[[Bench], list[Row]]]] = (
    ("library", library),
    ("idle targets", idling),
    ("wake-ups", wake_ups),
    ("start-up", start_up),
    ("Python calls", python_calls),
)

EVAL_FIGURES: Sequence[tuple[str, Callable[[Bench], list[Row]]]] = (
    ("commands", commands),
    ("round trips", round_trips),
    ("10 MB of output", output),
)
