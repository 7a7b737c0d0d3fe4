"""Every figure of SQL: what a query costs, beside an engine with the same rows in a table of its own."""

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from peers import Peer
from samples import Sample, in_turn
from sql_queries import QUERIES
from sql_tools import Engine, duckdb, ours, recorded
from table import Budget, Row

ROUNDS = 7
FIRST_ROUNDS = 9
ROWS = 1_000_000
MEGA = 1e6


@dataclass(frozen=True)
class SqlBench:
    peer: Peer
    duckdb: Path | None


def queries(bench: SqlBench) -> list[Row]:
    """Each query in turn; the least CPU of all rounds."""
    rows = []
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(recorded(bench.peer))
        asked = stack.enter_context(ours(bench.peer, target))
        counted = asked.ask("SELECT count(*), count(DISTINCT module), sum(bytes) FROM steps")[0]
        engines: list[Engine] = [asked]
        if bench.duckdb:
            engines.append(stack.enter_context(duckdb(bench.duckdb)))
        before = target.cpu_nanos(), target.rss()
        totals: dict[str, float] = {}
        for words, sql in QUERIES.items():

            def sample(engine: Engine, sql: str = sql) -> Sample:
                return {"cpu": engine.cpu_millis(sql.format(table=engine.table))}

            samples = in_turn(engines, ROUNDS, sample)
            cells = samples.best_cells("cpu")
            rows.append(Row(words, "ms", cells, f"CPU, least of {ROUNDS}"))
            for name, value in samples.best("cpu").items():
                totals[name] = totals.get(name, 0) + value
        spent = totals["ours"]
        rows.append(Row("all eight", "ms", totals, "sum of these"))
        rows.append(_scan(asked))
        after = target.cpu_nanos(), target.rss()
    used = {"ours": (after[0] - before[0]) / MEGA}
    grown = {"ours": after[1] - before[1]}
    rows.append(
        Row("the target's CPU meanwhile", "ms", used, f"during {spent * ROUNDS:.0f} ms of queries", compares=False)
    )
    rows.append(Row("… and memory", "MB", grown, "grown", compares=False))
    rows.append(Row("rows there", "", {"ours": float(str(counted[0]))}, f"of {ROWS}", compares=False))
    return rows


def _scan(asked: Engine) -> Row:
    sql = QUERIES["sum, max"].format(table=asked.table)
    least = min(asked.cpu_millis(sql) for _ in range(ROUNDS))
    return Row("scan of two columns", "M/s", {"ours": ROWS / MEGA / (least / 1e3)}, "rows of a core", compares=False)


def first_answer(bench: SqlBench) -> list[Row]:
    """A command from its start to its end."""
    with bench.peer.target(probed=True) as target:
        spent = [bench.peer.command_spent("-t", str(target.pid), "query", "select 1") for _ in range(FIRST_ROUNDS)]
    wall = statistics.median(one.wall_seconds for one in spent) * 1e3
    cpu = statistics.median(one.cpu_seconds for one in spent) * 1e3
    how = f"whole command, median of {FIRST_ROUNDS}"
    return [
        Row("select 1", "ms", {"ours": wall}, how, Budget("≤ 60 ms", 60)),
        Row("… CPU", "ms", {"ours": cpu}, how, Budget("≤ 40 ms", 40)),
    ]


def size(bench: SqlBench) -> list[Row]:
    """Two files: what needs no engine starts without it."""
    sizes = {name: (bench.peer.folder / "bin" / name).stat().st_size / MEGA for name in ("probing", "probing-engine")}
    return [Row(name, "MB", {"ours": size}, "size of the file", compares=False) for name, size in sizes.items()]


SQL_FIGURES: Sequence[tuple[str, Callable[[SqlBench], list[Row]]]] = (
    ("eight queries over a million rows", queries),
    ("the first answer", first_answer),
    ("the size of the command", size),
)
