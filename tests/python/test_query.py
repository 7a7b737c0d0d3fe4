"""``Probe.query``: SQL over another process, on real targets."""

import pytest
from conftest import threads_of_ours

import probing
from probing import Probe


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
