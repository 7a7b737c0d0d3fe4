"""A program as programs are: a language of arithmetic with names, which it takes apart, simplifies and runs.

What it does is measured by `trace_target.py`, which has all functions here followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

SOURCE = """
rate = 3 + 4 * 2
price = (rate - 1) * (rate + 1) / 2
total = 0
total = total + price * 3 - (price + rate) * (2 - 1)
missing + 1
tax = total / (rate - 11)
total = total + tax * 0 + (1 * price)
"""
WORDS = re.compile(r"\s*(?:(\d+)|(\w+)|(.))")


class Unknown(Exception):
    """A name that nobody has given a value."""


class Number:
    def __init__(self, value: float) -> None:
        self.value = value

    def run(self, _names: dict[str, float]) -> float:
        return self.value

    def simple(self) -> Node:
        return self


class Name:
    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, names: dict[str, float]) -> float:
        try:
            return names[self.name]
        except KeyError:
            raise Unknown(self.name) from None

    def simple(self) -> Node:
        return self


class Both:
    """Two parts and what is done with them."""

    def __init__(self, sign: str, left: Node, right: Node) -> None:
        self.sign, self.left, self.right = sign, left, right
        self.do = operation(sign)

    def run(self, names: dict[str, float]) -> float:
        return self.do(self.left.run(names), self.right.run(names))

    def simple(self) -> Node:
        left, right = self.left.simple(), self.right.simple()
        if isinstance(left, Number) and isinstance(right, Number):
            return Number(self.do(left.value, right.value))
        if is_number(left, 1) and self.sign == "*":
            return right
        return Both(self.sign, left, right)


Node = Number | Name | Both


def is_number(node: Node, value: float) -> bool:
    return isinstance(node, Number) and node.value == value


def operation(sign: str) -> Callable[[float, float], float]:
    def divide(left: float, right: float) -> float:
        return left / right if right else 0.0

    plain: dict[str, Callable[[float, float], float]] = {
        "+": lambda left, right: left + right,
        "-": lambda left, right: left - right,
        "*": lambda left, right: left * right,
    }
    return plain.get(sign, divide)


def words(line: str) -> Iterator[str]:
    for number, name, sign in WORDS.findall(line):
        yield number or name or sign


class Parser:
    def __init__(self, line: str) -> None:
        self._words = [word for word in words(line) if not word.isspace()]
        self._at = 0

    def next(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def take(self) -> str:
        word = self.next()
        self._at += 1
        return word

    def sum(self) -> Node:
        return self._chain("+-", self.product)

    def product(self) -> Node:
        return self._chain("*/", self.part)

    def part(self) -> Node:
        word = self.take()
        if word == "(":
            inside = self.sum()
            self.take()
            return inside
        return Number(float(word)) if word.isdigit() else Name(word)

    def _chain(self, signs: str, part: Callable[[], Node]) -> Node:
        node = part()
        while self.next() and self.next() in signs:
            node = Both(self.take(), node, part())
        return node


def run(source: str) -> dict[str, float]:
    names: dict[str, float] = {}
    for line in filter(None, source.splitlines()):
        name, given, rest = line.partition("=")
        node = Parser(rest if given else line).sum().simple()
        try:
            value = node.run(names)
        except Unknown:
            continue
        if given:
            names[name.strip()] = value
    return names


def main(times: int) -> None:
    for _ in range(times):
        run(SOURCE)
