"""Every figure of SQL: what a query costs, beside an engine with the same rows in a table of its own."""

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from peers import Peer
from samples import Sample, in_turn
from sql_queries import QUERIES
from sql_rows import ROWS
from sql_tools import WORDS, Engine, Ours, compare, duckdb, older, ours, recorded
from table import Budget, Row

ROUNDS = 7
FIRST_ROUNDS = 9
MEGA = 1e6


@dataclass(frozen=True)
class SqlBench:
    peer: Peer
    duckdb: Path | None
    older: Peer | None


def queries(bench: SqlBench) -> list[Row]:
    """Each query in turn; the least CPU of all rounds."""
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(recorded(bench.peer))
        asked = stack.enter_context(ours(bench.peer, target))
        counted = asked.ask("SELECT count(*) FROM steps")[0]
        engines: list[Engine] = [asked]
        if bench.duckdb:
            other = stack.enter_context(duckdb(bench.duckdb))
            compare(asked, other)
            engines.append(other)
        if bench.older:
            engines.append(stack.enter_context(older(bench.older)))
        before = target.cpu_nanos(), target.rss()
        rows = _eight(engines)
        rows.append(_scan(asked))
        after = target.cpu_nanos(), target.rss()
    used = {"ours": (after[0] - before[0]) / MEGA}
    grown = {"ours": after[1] - before[1]}
    rows.append(Row("the target's CPU meanwhile", "ms", used, "while all queries are asked", compares=False))
    rows.append(Row("… and memory", "MB", grown, "grown", compares=False))
    rows.append(Row("rows there", "", {"ours": float(str(counted[0]))}, f"of {ROWS}", compares=False))
    return rows


def _eight(engines: Sequence[Engine]) -> list[Row]:
    rows = []
    answered: dict[str, dict[str, float]] = {}
    for words, sql in QUERIES.items():

        def sample(engine: Engine, sql: str = sql) -> Sample:
            return {"cpu": engine.cpu_millis(sql.format(**engine.words))}

        samples = in_turn(engines, ROUNDS, sample)
        rows.append(Row(words, "ms", samples.best_cells("cpu"), f"CPU, least of {ROUNDS}"))
        answered[words] = samples.best("cpu")
    rows.append(Row("all eight", "ms", _totals(answered, list(QUERIES)), "sum of these"))
    names = [engine.name for engine in engines]
    common = [words for words, cpu in answered.items() if all(name in cpu for name in names)]
    if len(common) < len(QUERIES):
        rows.append(Row(f"the {len(common)} that all answer", "ms", _totals(answered, common), "sum of those"))
    return rows


def _totals(answered: dict[str, dict[str, float]], chosen: Sequence[str]) -> dict[str, float]:
    """The sum of these queries, for each engine that answers all of them."""
    names = {name for words in chosen for name in answered[words]}
    able = [name for name in names if all(name in answered[words] for words in chosen)]
    return {name: sum(answered[words][name] for words in chosen) for name in able}


def _scan(asked: Ours) -> Row:
    """What two columns cost beyond the question itself."""

    def least(sql: str) -> float:
        return min(asked.cpu_millis(sql) for _ in range(ROUNDS))

    # Sums and bounds are known without reading: this is not.
    both = "SELECT bit_xor(duration), bit_xor(bytes) FROM {table}".format(**WORDS)
    spent = least(both) - least(QUERIES["count(*)"].format(**WORDS))
    return Row(
        "scan of two columns",
        "M/s",
        {"ours": ROWS / MEGA / (spent / 1e3)},
        "rows of a core: bit_xor of both without count(*) (≥ 200 M/s)",
        compares=False,
    )


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
