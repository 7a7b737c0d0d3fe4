"""Breakpoints, watches and stops from a program: of another process, and of the own one."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TARGETS, Start, wait_until

import probing
from probing import connect

SOURCE = (TARGETS / "steps.py").read_text().splitlines()


def line(mark: str) -> int:
    """The line of ``steps.py`` that carries this mark."""
    return 1 + next(number for number, text in enumerate(SOURCE) if text.endswith(f"# @{mark}"))


def tell(process: "subprocess.Popen[str]", word: str) -> None:
    assert process.stdin
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_breakpoints_of_another_process(start: Start) -> None:
    target = start("steps.py", PROBING="1")
    with connect(target.pid) as probe:
        point = probe.break_at(f"steps.py:{line('sum')}", condition="item > 0", action="log:{item}")
        assert (point.id, point.action, point.condition) == (1, "log", "item > 0")
        assert [(frame.func, frame.lineno) for frame in point.bound] == [("add_up", line("sum"))]
        assert point.cost
        tell(target, "3")
        assert said(target) == "total 6"
        (point,) = probe.breakpoints()
        assert (point.hits, point.fired, point.dropped) == (2, 2, 0)
        assert [gone.id for gone in probe.disarm(point)] == [point.id]
        assert probe.breakpoints() == []


def test_an_expression_has_the_time_that_it_is_given(start: Start) -> None:
    target = start("steps.py", PROBING="1")
    endless = "any(False for _ in iter(int, 1))"
    with connect(target.pid) as probe:
        probe.break_at("add_up", condition=endless, action="count", expression_timeout=0.1)
        probe.watch("rate", condition=endless, expression_timeout=0.1)
        tell(target, "3")
        assert said(target) == "total 6"
        point, _ = probe.breakpoints()
        assert point.note
        assert point.note.startswith("deleted: its condition did not end within 0.1 s")
        with pytest.raises(probing.ProbingError, match="expression_timeout_seconds"):
            probe.break_at("add_up", condition=endless, expression_timeout=-1.0)


def test_a_stop_is_seen_and_released(start: Start) -> None:
    target = start("steps.py", PROBING="1")
    with connect(target.pid) as probe:
        probe.break_at("add_up", once=True)
        assert probe.stops() == []
        tell(target, "3")
        wait_until(lambda: bool(probe.stops()))
        (stop,) = probe.stops()
        assert (stop.thread_name, stop.why) == ("MainThread", "breakpoint")
        assert [frame.func for frame in stop.frames] == ["add_up", "main", "<module>"]
        assert [released.id for released in probe.release(stop)] == [stop.id]
        assert said(target) == "total 6"


def test_without_a_probe_no_breakpoint_is_set_and_none_is_attached(start: Start) -> None:
    target = start("steps.py")
    with connect(target.pid) as probe:
        assert probe.breakpoints() == probe.stops() == probe.disarm() == probe.release() == []
    assert connect(target.pid)._command.hello["probed"] is False


def test_mistakes_are_said(start: Start) -> None:
    with connect(start("steps.py", PROBING="1").pid) as probe:
        with pytest.raises(probing.ProbingError, match="no file: write"):
            probe.break_at("120")
        with pytest.raises(probing.ProbingError, match="one of place, raise, uncaught and watch"):
            probe.break_at("add_up", uncaught=True)
        with pytest.raises(probing.ProbingError, match="not stop, log"):
            probe.break_at("add_up", action="halt")


def test_breakpoints_can_be_set_in_the_own_process(tmp_path: Path) -> None:
    program = tmp_path / "own.py"
    program.write_text(
        "import probing\n"
        "def work(number):\n"
        "    return number * 2\n"
        "point = probing.debugger.break_at('work', action='count')\n"
        "assert point.bound[0].func == 'work', point\n"
        "for number in range(5):\n"
        "    work(number)\n"
        "(armed,) = probing.debugger.points()\n"
        "assert armed.hits == 5, armed\n"
        "assert [gone.id for gone in probing.debugger.disarm(armed)] == [armed.id]\n"
        "assert probing.debugger.points() == probing.debugger.stops() == []\n"
        "print('done')\n"
    )
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("done\n", "")


def test_a_depth_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="depth must be 0 or more: -1"):
        probing.probe(depth=-1)
    with pytest.raises(ValueError, match="depth must be 0 or more: -2"):
        probing.trace("block", depth=-2)
