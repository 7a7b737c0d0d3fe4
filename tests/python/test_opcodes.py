"""Numbers of instructions that stand in code for targets, which may be packed without `opcode`."""

import __future__

import opcode
import sys
from pathlib import Path
from typing import Any

import pytest

_SOURCES = Path(__file__).parents[2] / "crates/probing-probe/python"
# Instructions with larger numbers are made by the interpreter itself, or by the compiler for itself.
_LAST = 234


def _run(name: str, version: tuple[int, int] | None = None) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        if version is not None:
            patch.setattr(sys, "version_info", type("Version", (tuple,), {"minor": version[1]})(version))
        names: dict[str, Any] = {"__name__": name}
        # As the probe compiles it.
        flags = __future__.annotations.compiler_flag
        exec(compile((_SOURCES / name).read_text(), name, "exec", flags, dont_inherit=True), names)
        return names


def _caches() -> dict[int, int]:
    entries: Any = getattr(opcode, "_inline_cache_entries", {})
    if isinstance(entries, list):
        entries = {opcode.opname[number]: count for number, count in enumerate(entries)}
    return {
        opcode.opmap[name]: count for name, count in entries.items() if count and opcode.opmap.get(name, 999) <= _LAST
    }


def test_the_opcodes_of_watches_are_those_of_this_python() -> None:
    watches = _run("watchpoints.py")
    numbers, backward, forward, caches = watches["_OPCODES"][sys.version_info.minor]
    assert numbers == tuple(opcode.opmap.get(name, -1) for name in watches["_NAMED"])
    jumps = [number for number in sorted({*opcode.hasjrel, *opcode.hasjabs}) if number <= _LAST]
    assert backward == tuple(number for number in jumps if "BACKWARD" in opcode.opname[number])
    assert forward == tuple(number for number in jumps if "BACKWARD" not in opcode.opname[number])
    assert caches == _caches()


def test_a_python_whose_opcodes_are_not_known_is_named() -> None:
    with pytest.raises(NotImplementedError, match=r"no watches of variables on Python 3\.99: its bytecode"):
        _run("watchpoints.py", (3, 99))
