"""Samples of several peers, taken in turn so that a busy moment of the machine meets all of them."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from clients import NoAnswer

# One turn of one peer: figures by name.
Sample = dict[str, float]


class Named(Protocol):
    @property
    def name(self) -> str: ...


Peer = TypeVar("Peer", bound=Named)


class Samples:
    """What all turns of all peers gave."""

    def __init__(self) -> None:
        self._values: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        # With what became of it.
        self._silent: dict[str, str] = {}

    def middle(self, figure: str) -> dict[str, float]:
        """The median of each peer that answered."""
        return self._summed_up(figure, statistics.median)

    def best(self, figure: str) -> dict[str, float]:
        """The least of each peer that answered."""
        return self._summed_up(figure, min)

    def cells(self, figure: str) -> dict[str, float | str]:
        """The median of each peer that answered, what became of each other."""
        return {**self.middle(figure), **self._silent}

    def best_cells(self, figure: str) -> dict[str, float | str]:
        """The least of each peer that answered, what became of each other."""
        return {**self.best(figure), **self._silent}

    def worst_cells(self, figure: str) -> dict[str, float | str]:
        """The most of each peer that answered, what became of each other."""
        return {**self._summed_up(figure, max), **self._silent}

    def take(self, peer: Peer, sample: Callable[[Peer], Sample]) -> None:
        """One turn. A peer that fails once is silent from then on; ours may not fail."""
        if peer.name in self._silent:
            return
        try:
            figures = sample(peer)
        except (NoAnswer, OSError) as error:
            if peer.name == "ours":
                raise
            self._silent[peer.name] = error.outcome if isinstance(error, NoAnswer) else "no answer"
            return
        for figure, value in figures.items():
            self._values[peer.name, figure].append(value)

    def _summed_up(self, figure: str, summary: Callable[[list[float]], float]) -> dict[str, float]:
        return {
            name: summary(values)
            for (name, kind), values in self._values.items()
            if kind == figure and name not in self._silent
        }


def in_turn(peers: Sequence[Peer], rounds: int, sample: Callable[[Peer], Sample]) -> Samples:
    samples = Samples()
    for _ in range(rounds):
        for peer in peers:
            samples.take(peer, sample)
    return samples
