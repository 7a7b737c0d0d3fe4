"""Every figure of breakpoints: how much slower a hot loop is with one, beside other debuggers, on each Python."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from clients import FramedClient, NoAnswer
from dap import DapClient
from environments import ROOT, OnePython
from table import Budget, Row

PROGRAM = ROOT / "benches/stops_target.py"
TOOLS = ("ours", "debugpy", "dowhen", "pdb", "settrace")
ROUNDS = 5
# What each can be asked for.
WATCHES = {"write", "item"}
# A function by its name, beside its line: each call passes it.
CALLS = {"line", "function"}
NOT = {
    "debugpy": {"raise", "raising", "after", *WATCHES, *CALLS},
    "dowhen": {"raise", "raising", "after", *WATCHES, *CALLS},
    "pdb": {"raise", "raising", "after", "log", *WATCHES, *CALLS},
    "settrace": {"after", "elsewhere", "cold", "native", "general", "raise", "raising", "log", *CALLS},
}


class Loop:
    """A process with the hot loop, and one debugger."""

    def __init__(self, tool: str, child: "subprocess.Popen[str]", runtime_dir: Path) -> None:
        self.tool = tool
        self._child = child
        self._runtime_dir = runtime_dir

    def ask(self, **request: object) -> object:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(request) + "\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            raise NoAnswer(f"the loop of {self.tool} has ended")
        return json.loads(answer)

    def plain(self, case: str) -> float:
        """Nanoseconds of a pass without any debugger's doing."""
        return float(str(self.ask(do="time", tool="nothing", case=case)))

    def armed(self, case: str) -> float:
        """Nanoseconds of a pass with a breakpoint."""
        if self.tool == "ours":
            if case != "after":
                answer = self._ours.ask("arm", **self._point(case))
                if not answer.get("bound") and case not in ("raise", "raising", "item"):
                    raise NoAnswer(str(answer))
            time = float(str(self.ask(do="time", tool="ours", case=case)))
            self._ours.ask("disarm", points=[])
            return time
        if self.tool == "debugpy":
            line, condition = self._place(case)
            log = "{row} {total}" if case == "log" else None
            self._debugpy.break_at(str(PROGRAM), line, condition=condition, log=log)
        return float(str(self.ask(do="time", tool=self.tool, case=case)))

    def close(self) -> None:
        if self.tool == "ours":
            self._ours.close()
        elif self.tool == "debugpy":
            self._debugpy.close()

    @cached_property
    def _ours(self) -> FramedClient:
        return FramedClient(self._runtime_dir, self._child.pid)

    @cached_property
    def _debugpy(self) -> DapClient:
        return self._attached()

    def _place(self, case: str) -> tuple[int, str | None]:
        places = self.ask(do="lines")
        assert isinstance(places, dict)
        line, condition = places[case]
        return line, condition

    def _point(self, case: str) -> dict[str, object]:
        line, condition = self._place(case)
        if case in ("raise", "raising"):
            place: dict[str, object] = {"on": "raise", "exception": "ZeroDivisionError"}
        elif case == "write":
            place = {"on": "local", "function": "hot", "name": "total"}
        elif case == "function":
            place = {"on": "function", "function": "called"}
        elif case == "item":
            place = {"on": "value", "path": "CONFIG['rate']"}
        else:
            place = {"on": "line", "file": str(PROGRAM), "line": line}
        action = {"do": "log", "text": "{row} {total}"} if case == "log" else {"do": "count"}
        return {"place": place, "action": action, **({"condition": condition} if condition else {})}

    def _attached(self) -> DapClient:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = int(server.getsockname()[1])
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"do": "listen", "port": port}) + "\n")
        self._child.stdin.flush()
        client = DapClient.waited_for(port)
        assert self._child.stdout is not None
        self._child.stdout.readline()
        return client


@contextlib.contextmanager
def loop(bench: OnePython, tool: str) -> Iterator[Loop]:
    environ = {**bench.environ, **({"PROBING": "1"} if tool == "ours" else {})}
    pipe = subprocess.PIPE
    argv = [bench.python, "-Xfrozen_modules=off", "-B", PROGRAM]
    with subprocess.Popen(argv, env=environ, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        try:
            if child.stdout.readline() != "ready\n":
                raise NoAnswer(f"the loop of {tool} did not start")
            started = Loop(tool, child, Path(bench.environ["PROBING_DIR"]))
            yield started
            started.close()
        finally:
            child.kill()


@dataclass(frozen=True)
class Times:
    """Nanoseconds of a pass, the least of all rounds: without and with a breakpoint."""

    plain: float
    armed: float

    @property
    def ratio(self) -> float:
        return self.armed / self.plain

    @property
    def extra_nanos(self) -> float:
        return self.armed - self.plain


def taken(bench: OnePython, cases: Sequence[str]) -> dict[tuple[str, str], Times]:
    """All tools and cases in turn, each round with a run without anything beside it."""
    times: dict[tuple[str, str], Times] = {}
    tools = [tool for tool in TOOLS if tool != "dowhen" or bench.has_monitoring]
    with contextlib.ExitStack() as stack:
        loops = [stack.enter_context(loop(bench, tool)) for tool in tools]
        # debugpy slows the program down from the moment it listens: what it is compared with is taken before.
        before = {(it.tool, case): min(it.plain(case) for _ in range(3)) for it in loops for case in cases}
        for _ in range(ROUNDS):
            for it in loops:
                for case in cases:
                    if case in NOT.get(it.tool, ()):
                        continue
                    plain = before[it.tool, case] if it.tool == "debugpy" else it.plain(case)
                    armed = it.armed(case)
                    known = times.get((it.tool, case), Times(before[it.tool, case], armed))
                    times[it.tool, case] = Times(min(known.plain, plain), min(known.armed, armed))
    return times


def slowdown(bench: OnePython) -> list[Row]:
    new = bench.has_monitoring
    cases: dict[str, tuple[str, Budget | None]] = {
        "after": ("nothing armed any more", Budget("1.00", 1.03)),
        "elsewhere": ("breakpoint in another function", Budget("≤ 1.03", 1.03)),
        "cold": ("on a line that is not reached", Budget("≤ 1.05", 1.05) if new else Budget("≤ 7", 7)),
        "native": ("on a hot line, --if 'total == -5'", Budget("≤ 1.6", 1.6)),
        "general": ("… --if 'total % 1000003 == -1'", Budget("≤ 5", 5)),
        "raise": ("--raise, nothing raised", Budget("≤ 1.05", 1.05)),
        "raising": ("… another class raised each time", None),
        "log": ("a log line", Budget("≤ 1.5 µs", 1.5)),
        "write": ("watch of a local, each write", Budget("≤ 80 ns", 80)),
        # Before, dictionaries do not tell: it is compared at each line.
        "item": ("… of an item of a dictionary", Budget("≤ 80 ns", 80) if new else None),
    }
    times = taken(bench, [*cases, *sorted(CALLS)])
    by_name, by_line = times["ours", "function"].extra_nanos, times["ours", "line"].extra_nanos
    how = f"{by_name:.0f} ns for each call against {by_line:.0f}, the call taken off; one run"
    others = dict.fromkeys((tool for tool in TOOLS if tool != "ours"), "-")
    ratio = Row("a function by name : by line", "x", {"ours": by_name / by_line, **others}, how, Budget("≤ 2", 2))
    rows = [ratio]
    for case, (figure, budget) in cases.items():
        of_case = {tool: times[tool, case] for tool in TOOLS if (tool, case) in times}
        absent = dict.fromkeys((tool for tool in TOOLS if tool not in of_case), "-")
        if case == "log":
            values = {tool: it.extra_nanos / 1000 for tool, it in of_case.items()}
            rows.append(Row(figure, "µs", {**absent, **values}, "CPU of each, the loop taken off", budget))
            continue
        if case in WATCHES:
            values = {tool: it.extra_nanos for tool, it in of_case.items()}
            rows.append(Row(figure, "ns", {**absent, **values}, "CPU of each, the loop taken off", budget))
            continue
        ratios = {tool: it.ratio for tool, it in of_case.items()}
        ours = of_case["ours"]
        how = f"ours {ours.plain:.0f} ns a pass, and {ours.extra_nanos:+.0f}"
        rows.append(Row(figure, "x", {**absent, **ratios}, how, budget))
    return rows


def stops_figures(bench: OnePython) -> Sequence[tuple[str, Callable[[], list[Row]]]]:
    return ((f"a hot loop on Python {bench.version}", partial(slowdown, bench)),)
