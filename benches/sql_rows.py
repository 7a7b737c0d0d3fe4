"""The million rows that SQL is compared on, as a training program would record them."""

from collections.abc import Iterator

ROWS = 1_000_000
PER_STEP = 800
MODULES = [f"model.layers.{number}.attention" for number in range(200)]
STAGES = ["forward", "pre forward", "backward", "step"]


def rows() -> Iterator[tuple[int, str, str, int, int]]:
    """Step, module, stage, duration, bytes; `sql_duckdb.py` has the same."""
    for row in range(ROWS):
        stage = STAGES[row // 200 % 4]
        yield row // PER_STEP, MODULES[row % 200], stage, row * 7919 % 1_000_003, row * 104_729 % 1_000_000_007
