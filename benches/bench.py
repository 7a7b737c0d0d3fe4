"""Prepares the peers, takes every figure, prints the table. Never fails on a time: who reads it judges.

Words go to stderr, the table to stdout.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from clients import NoAnswer
from environments import prepare_bare, prepare_older, prepare_ours
from figures import FIGURES, Bench
from peers import Peer
from table import render


def main() -> int:
    started = time.monotonic()
    try:
        bare, ours, older = prepare_bare(), prepare_ours(), prepare_older()
    except subprocess.CalledProcessError as error:
        print(f"error: cannot prepare the environments, status {error.returncode}: {error.cmd[0]}", file=sys.stderr)
        return 1
    # Short: the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as meeting:
        bench = Bench(
            bare_python=bare, peers=[Peer.ours(ours, Path(meeting) / "d"), *([Peer.older(older)] if older else [])]
        )
        rows = []
        for words, figures in FIGURES:
            print(f"==> {words}", file=sys.stderr, flush=True)
            try:
                rows += figures(bench)
            except (NoAnswer, OSError) as error:
                print(f"error: ours does not work: {error}", file=sys.stderr)
                return 1
    print(f"\n{_facts(bench.peers)}\n")
    print(render(rows, has_older=older is not None))
    print(f"\n{NOTES}\nTaken in {time.monotonic() - started:.0f} s, preparation included.")
    return 0


NOTES = """\
ours: built for release, as `pip install .` does. older: from PyPI, with ipykernel, which its eval needs.
ratio: older / ours. extra: a probed target minus an unprobed one of the same environment.
✓ ✗: within the budget of the issue, or not; a busy machine adds noise. The two take turns within one run."""


def _facts(peers: Sequence[Peer]) -> str:
    """What was compared, and on what."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    load = os.getloadavg()[0]
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in peers)
    machine = f"{model}, {os.cpu_count()} cores (load {load:.1f}), Linux {platform.release()}"
    return f"{machine}, Python {peers[0].python_version}\n{versions}"


if __name__ == "__main__":
    sys.exit(main())
