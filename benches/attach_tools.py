"""What is compared at attaching: each tool in its own environment, with its own commands."""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clients import NoAnswer
from environments import HYPNO, MADBG, pinned
from peers import ENVIRON, Peer
from unprepared import Done, Unprepared


@dataclass(frozen=True)
class Attached:
    """What one attach took. The last two are by the tool's own account."""

    wall_seconds: float
    took_seconds: float | None = None
    paused_seconds: float | None = None


@dataclass(frozen=True)
class Tool:
    name: str
    version: str
    attach: Callable[[Unprepared], Attached]
    # From the start of the command: seconds until code that ran in the target has answered `1`.
    first_answer: Callable[[Unprepared], float]
    # None: it stays in the target, or has left it by itself.
    detach: Callable[[Unprepared], None] | None = None


def our_tool(peer: Peer) -> Tool:
    def probing(target: Unprepared, *arguments: str) -> Done:
        return target.beside([peer.folder / "bin/probing", "-t", str(target.pid), *arguments], peer.environ)

    def attach(target: Unprepared) -> Attached:
        done = probing(target, "attach", "--json")
        report = json.loads(done.stdout)
        return Attached(done.wall_seconds, report["took_seconds"], report["paused_seconds"])

    def detach(target: Unprepared) -> None:
        probing(target, "detach")

    return Tool(peer.name, peer.version, attach, lambda target: _answered(probing(target, "eval", "1")), detach)


def older_tool(peer: Peer) -> Tool:
    def probing(target: Unprepared, *arguments: str) -> Done:
        return target.beside([peer.folder / "bin/probing", "-t", str(target.pid), *arguments], peer.environ)

    def attach(target: Unprepared) -> Attached:
        return Attached(probing(target, "inject").wall_seconds)

    def first_answer(target: Unprepared) -> float:
        return attach(target).wall_seconds + _answered(probing(target, "eval", "1"))

    return Tool(peer.name, peer.version, attach, first_answer)


def hypno_tool(folder: Path) -> Tool:
    """It runs code, but brings back nothing: the code writes its answer to a pipe."""

    def hypno(target: Unprepared, code: str, answers: int | None = None) -> Done:
        return target.beside([folder / "bin/hypno", str(target.pid), code], ENVIRON, answers=answers)

    def first_answer(target: Unprepared) -> float:
        with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as meeting:
            path = f"{meeting}/answers"
            os.mkfifo(path)
            answers = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            try:
                return _answered(hypno(target, f"print(1, file=open({path!r}, 'w'), flush=True)", answers))
            finally:
                os.close(answers)

    return Tool("hypno", pinned(HYPNO), lambda target: Attached(hypno(target, "1").wall_seconds), first_answer)


def madbg_tool(folder: Path) -> Tool:
    def attach(target: Unprepared) -> Attached:
        return Attached(target.beside([folder / "bin/madbg", "attach", str(target.pid)], ENVIRON).wall_seconds)

    def first_answer(target: Unprepared) -> float:
        attach(target)
        raise NoAnswer("it answers at a terminal only", outcome="no answer")

    return Tool("madbg", pinned(MADBG), attach, first_answer)


def _answered(done: Done) -> float:
    if done.answer != b"1\n" or done.answered_seconds is None:
        raise NoAnswer(f"1 is {done.answer!r}", outcome="wrong")
    return done.answered_seconds
