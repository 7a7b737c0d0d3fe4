"""``Probe.query``: SQL over another process, on real targets."""

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import Start, children, threads_of_ours, wait_until

import probing
from probing import Probe, connect

# Computes for years.
ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000000000) AS a(x) WHERE x % 7 = 3"
# Where a ring says what format it is in.
FORMAT_AT = 8
# Nanoseconds that tell work from waking up.
A_WHILE = 20_000_000


def run(target: "subprocess.Popen[str]", line: str) -> None:
    """Has the target run a line."""
    assert target.stdin
    assert target.stdout
    target.stdin.write(line + "\n")
    target.stdin.flush()
    assert target.stdout.readline() == "done\n"


def test_a_query_gives_a_table(probe: Probe) -> None:
    before = threads_of_ours(probe.pid)
    table = probe.query(
        "SELECT pid, thread_name, depth, func, lineno > 0 AS known, source"
        " FROM python.backtrace ORDER BY main DESC, depth"
    )
    assert table.columns == ("pid", "thread_name", "depth", "func", "known", "source")
    assert table.rows[0][:2] == (probe.pid, "MainThread")
    assert table.rows[0][2] == 0
    assert table.column("known") == [True] * len(table)
    assert probe.query("SELECT 1 AS one, NULL AS no, 1.5 AS half").rows == [(1, None, 1.5)]
    assert "MainThread" in repr(probe.query("SELECT name FROM python.threads"))
    # Nothing was brought in for it.
    assert threads_of_ours(probe.pid) == before


def test_what_is_wrong_with_a_query_is_said(prepared: Probe) -> None:
    for sql, words in (
        ("SELECT fun FROM python.backtrace", "no such column: .*fun\nhint: did you mean func"),
        ("SELECT 1 FROM python.backtraces", "no such table: python.backtraces\nhint: did you mean python.backtrace"),
        ("CHOOSE 1", "not SQL: "),
        ("DROP TABLE python.backtrace", "queries only read"),
    ):
        with pytest.raises(probing.ProbingError, match=words):
            prepared.query(sql)


def spent_on_queries() -> int:
    """CPU nanoseconds of the threads that work on queries, in the commands that we started."""
    spent = 0
    for task in (task for child in children() for task in Path(f"/proc/{child}/task").iterdir()):
        # A thread may end while one looks.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (task / "comm").read_text() == "query\n":
                spent += int((task / "schedstat").read_text().split()[0])
    return spent


def test_recorded_rows_come_as_a_table(start: Start) -> None:
    target = start("recording.py")
    run(target, "for n in range(1000): probing.record('train', step=n, loss=1 / (n + 1), name=f'layer {n % 3}')")
    run(target, "probing.record('train', step=None, loss=float('nan'), name='ä')")
    run(target, "probing.event('saved', path='/x')")
    with connect(target.pid) as probe:
        table = probe.query("SELECT name, count(*) AS rows, max(step) AS last FROM train GROUP BY name ORDER BY name")
        assert table.columns == ("name", "rows", "last")
        assert table.rows == [("layer 0", 334, 999), ("layer 1", 333, 997), ("layer 2", 333, 998), ("ä", 1, None)]
        assert table.to_dicts()[0] == {"name": "layer 0", "rows": 334, "last": 999}
        events = probe.query("SELECT kind, name, attributes FROM python.trace_event")
        assert events.rows == [("event", "saved", '{"path":"/x"}')]
        assert len(probe.query("SELECT * FROM train")) == 1001
        # What comes later is there at the next question.
        run(target, "probing.record('train', step=5000)")
        assert probe.query("SELECT max(step) FROM train").rows == [(5000,)]


def test_rows_that_a_probe_of_another_version_wrote_are_noted(start: Start) -> None:
    target = start("recording.py")
    run(target, "probing.record('train', step=1)")
    (ring,) = Path(os.environ["PROBING_DIR"]).glob("*/rings/*-user.train.ring")
    with ring.open("r+b") as file:
        file.seek(FORMAT_AT)
        file.write((3).to_bytes(4, "little"))
    run(target, "probing.record('train', step=2, more='x')")
    with connect(target.pid) as probe:
        table = probe.query("SELECT step FROM user.train")
        assert table.rows == [(2,)]
        words = f"pid {probe.pid}: rows of user.train are in format 3, which this version does not read"
        assert table.note is not None
        assert table.note.startswith(f"{words}\n  hint: use the version of `probing`")
        assert repr(table) == f"step\n2\n{table.note}"
        assert f"<p>{words}</p>" in table._repr_html_()
        other = probe.query("SELECT 1 AS one")
        assert (other.note, repr(other)) == (None, "one\n1")


def test_ctrl_c_ends_a_query_and_not_the_connection(prepared: Probe) -> None:
    assert prepared.query("SELECT 1").rows == [(1,)]
    before = spent_on_queries()

    def press() -> None:
        wait_until(lambda: spent_on_queries() > before + A_WHILE)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        prepared.query(ENDLESS)
    presser.join()
    assert prepared.query("SELECT 40 + 2").rows == [(42,)]


def test_an_answer_that_is_too_large_is_refused(prepared: Probe) -> None:
    with pytest.raises(probing.ProbingError, match="more than 1000000 rows for one answer\nhint: select fewer rows"):
        prepared.query("SELECT value FROM generate_series(1, 1000000000000)")
    assert prepared.query("SELECT 1").rows == [(1,)]
