"""What an agent in between costs: the same evals of the same target, by its pid and through its machine's port."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clients import NoAnswer
from peers import Peer
from processes import Target
from samples import Sample, in_turn
from table import Budget, Row

CLIENT = Path(__file__).parent / "remote_client.py"
AGENTS = {"plain": ["--listen", "127.0.0.1:0"], "TLS": ["--listen", "0"]}


@dataclass(frozen=True)
class Way:
    """How a target is named."""

    name: str
    target: str


@dataclass(frozen=True)
class RemoteBench:
    ours: Peer

    @contextlib.contextmanager
    def ways(self, target: Target) -> Iterator[list[Way]]:
        """By its pid, and through agents on loopback addresses of the same user."""
        with contextlib.ExitStack() as agents:
            ports = {name: agents.enter_context(self._agent(options)) for name, options in AGENTS.items()}
            through = [Way(name, f"127.0.0.1:{port}/{target.pid}") for name, port in ports.items()]
            yield [Way("local", str(target.pid)), *through]

    @contextlib.contextmanager
    def _agent(self, options: Sequence[str]) -> Iterator[int]:
        argv = [self.ours.folder / "bin/probing", "agent", *options]
        with subprocess.Popen(argv, env=self.ours.environ, stderr=subprocess.PIPE, text=True) as agent:
            try:
                assert agent.stderr is not None
                words = agent.stderr.readline().split()
                if words[:2] != ["listening", "on"]:
                    raise NoAnswer(f"no agent: {words}")
                yield int(words[2].rpartition(":")[2])
            finally:
                agent.terminate()


def round_trips(bench: RemoteBench) -> list[Row]:
    def sample(way: Way) -> Sample:
        return {"micros": float(bench.ours.python_spent(CLIENT, way.target, probed=False).stdout)}

    return _rows(bench, sample, "micros", ("eval, open connection", "µs", "by the package, median of 7 x 50"))


def commands(bench: RemoteBench) -> list[Row]:
    def sample(way: Way) -> Sample:
        spent = bench.ours.command_spent("-t", way.target, "eval", "1")
        if spent.stdout != b"1\n":
            raise NoAnswer(f"1 is {spent.stdout!r}")
        return {"millis": spent.wall_seconds * 1e3}

    return _rows(bench, sample, "millis", ("probing eval 1, wall", "ms", "command to its end, median of 7"))


def _rows(bench: RemoteBench, sample: Callable[[Way], Sample], figure: str, words: tuple[str, str, str]) -> list[Row]:
    name, unit, how = words
    with bench.ours.target(probed=True) as target, bench.ways(target) as ways:
        in_turn(ways, 1, sample)
        middle = in_turn(ways, 7, sample).middle(figure)
    # The verdict is on what stands in the first column.
    slowest = {"local": max(middle.values()) / middle["local"]}
    return [
        Row(name, unit, dict(middle), how, compares=False),
        Row("… slowest / local", "x", slowest, "of the same run", Budget("≤ 2 x", 2), compares=False),
    ]


REMOTE_FIGURES: Sequence[tuple[str, Callable[[RemoteBench], list[Row]]]] = (
    ("evals over open connections", round_trips),
    ("whole commands", commands),
)
