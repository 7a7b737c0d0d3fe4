"""Evaluates again and again over one connection; prints the median of the round trips in microseconds."""

import statistics
import sys
import time

from probing import connect


def main(target: str) -> None:
    with connect(target) as probe:
        probe.eval("1")

        def micros() -> float:
            started = time.perf_counter()
            probe.eval("1")
            return (time.perf_counter() - started) * 1e6

        print(statistics.median(micros() for _ in range(50)))


if __name__ == "__main__":
    main(sys.argv[1])
