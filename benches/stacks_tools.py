"""What is compared at reading stacks: commands that show them, and commands that sample them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clients import NoAnswer
from environments import PY_SPY, PYSTACK, pinned
from peers import ENVIRON, Peer
from processes import Spent, run

# What can be asked for beside the stacks.
EXTRAS = ("", "--locals", "--native")
RATE = 100


@dataclass(frozen=True)
class StackTool:
    name: str
    version: str
    # The command that shows all stacks of a process, with one of the extras; None: it cannot.
    show: Callable[[int, str], Sequence[str | Path] | None]
    # The command that samples it for so many seconds.
    sample: Callable[[int, float], Sequence[str | Path]] | None = None
    environ: dict[str, str] | None = None

    def can(self, extra: str) -> bool:
        return self.show(0, extra) is not None

    def shown(self, pid: int, extra: str) -> Spent:
        """Shows all stacks of a target of the bench."""
        command = self.show(pid, extra)
        assert command is not None
        return self._answered(command)

    def sampled(self, pid: int, seconds: float) -> Spent:
        assert self.sample is not None
        return self._answered(self.sample(pid, seconds))

    def _answered(self, command: Sequence[str | Path]) -> Spent:
        spent = run(command, self.environ or ENVIRON)
        # A function of the target.
        if b"watch" not in spent.stdout:
            raise NoAnswer(f"no stacks: {command}", outcome="no stacks")
        return spent


def our_stacks(peer: Peer) -> StackTool:
    probing = peer.folder / "bin/probing"
    words = run([probing, "backtrace", "--help"], peer.environ).stdout.decode()

    def show(pid: int, extra: str) -> Sequence[str | Path] | None:
        # An extra that this version does not have is no figure, and no failure.
        return [probing, "-t", str(pid), "backtrace", "--all", *extra.split()] if extra in words else None

    def sample(pid: int, seconds: float) -> Sequence[str | Path]:
        options = ["--for", str(seconds), "--rate", str(RATE), "--format", "folded", "-o", "-"]
        return [probing, "-t", str(pid), "flamegraph", *options]

    return StackTool(peer.name, peer.version, show, sample, peer.environ)


def py_spy(folder: Path, *, blocking: bool) -> StackTool:
    """By default it stops the target."""
    spy = folder / "bin/py-spy"
    mode = [] if blocking else ["--nonblocking"]

    def show(pid: int, extra: str) -> Sequence[str | Path] | None:
        if extra == "--native" and not blocking:
            return None
        return [spy, "dump", "--pid", str(pid), *mode, *extra.split()]

    def sample(pid: int, seconds: float) -> Sequence[str | Path]:
        options = ["--rate", str(RATE), "--duration", str(round(seconds)), "--format", "raw", "-o", "/dev/stdout"]
        return [spy, "record", "--pid", str(pid), *mode, *options]

    return StackTool("py-spy" if blocking else "py-spy nb", pinned(PY_SPY), show, sample)


def pystack(folder: Path) -> StackTool:
    def show(pid: int, extra: str) -> Sequence[str | Path]:
        return [folder / "bin/pystack", "remote", str(pid), *extra.split()]

    return StackTool("pystack", pinned(PYSTACK), show)
