"""What a probe answers, as values that show themselves well at a prompt and in a notebook.

Nothing here needs pandas or pyarrow; both are used only when they are asked for.
"""

import ast
import html
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

from probing import _visible

# Rows that are shown; all are there.
_SHOWN_IN_HTML = 200
_SHOWN_AS_TEXT = 60
# Characters of one cell that are shown.
_WIDEST_CELL = 80

_Built = TypeVar("_Built")

# What other packages give; they are not needed to know these.
DataFrame: TypeAlias = Any
ArrowTable: TypeAlias = Any


@dataclass(frozen=True, repr=False)
class EvalResult:
    """What became of evaluated code that did not raise."""

    value: Any
    """The value of a last expression: itself when it is made of literals, else its ``repr``. None without one."""
    text: str | None
    """The ``repr`` of that value, as the target wrote it. None when there is no value, or it is None."""
    output: str
    """What the code printed, to stdout and stderr, in order."""
    seconds: float
    """How long it ran."""
    output_dropped: int = 0
    """How many bytes it printed beyond what was wanted."""
    thread: str | None = None
    """The thread of the program that ran it. None when it had one of its own."""

    def __str__(self) -> str:
        """As a prompt would show it: the output, then the value."""
        more = f"… ({self.output_dropped} bytes more)\n" if self.output_dropped else ""
        return _visible.lines(self.output + more + (self.text or ""))

    def __repr__(self) -> str:
        return str(self) or "<no output, no value>"

    def _repr_html_(self) -> str:
        return _preformatted(str(self))


class Table:
    """Rows under named columns."""

    def __init__(self, columns: Iterable[str], rows: Iterable[Sequence[Any]], note: str | None = None) -> None:
        self.columns: tuple[str, ...] = tuple(columns)
        self.rows: list[tuple[Any, ...]] = [tuple(row) for row in rows]
        self.note = note
        """Which rows should be here besides and could not be read, and why. Shown below the rows."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def column(self, name: str) -> list[Any]:
        """All values of one column."""
        if name not in self.columns:
            raise KeyError(f"no column is named {name}; there are: {', '.join(self.columns)}")
        index = self.columns.index(name)
        return [row[index] for row in self.rows]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Each row as a dict."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_pandas(self) -> DataFrame:
        """A ``pandas.DataFrame``, when pandas is installed."""
        return _needed("pandas").DataFrame(self.rows, columns=list(self.columns))

    def to_arrow(self) -> ArrowTable:
        """A ``pyarrow.Table``, when pyarrow is installed."""
        return _needed("pyarrow").table({name: self.column(name) for name in self.columns})

    def __repr__(self) -> str:
        shown = [[_cell(value) for value in row] for row in self.rows[:_SHOWN_AS_TEXT]]
        names = [_visible.line(name) for name in self.columns]
        widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [names, *shown]
        ]
        return "\n".join([*lines, *self._rest(len(shown))])

    def _repr_html_(self) -> str:
        shown = self.rows[:_SHOWN_IN_HTML]
        head = "".join(f"<th>{html.escape(_visible.line(name))}</th>" for name in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(_cell(value))}</td>' for value in row)}</tr>" for row in shown)
        rest = "".join(f"<p>{html.escape(line)}</p>" for line in self._rest(len(shown)))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"

    def _rest(self, shown: int) -> list[str]:
        more = len(self.rows) - shown
        noted = _visible.lines(self.note).splitlines() if self.note else []
        return [f"… and {more} rows more", *noted] if more else noted


@dataclass(frozen=True)
class Local:
    """A local variable."""

    value: str
    """As Python would write it, cut to a bounded length."""
    type: str | None
    """The name of its type. None when the value could not be read."""


@dataclass(frozen=True)
class Frame:
    """One frame of a stack."""

    func: str
    file: str
    lineno: int | None
    """The line being executed."""
    depth: int
    """0 is the innermost frame of the program."""
    frame_type: str
    """``Python`` or ``Native``."""
    source: str | None
    """The text of the line, where the file can be read."""
    locals: dict[str, Local] | None
    """By their names. None when not asked for, or when the frame was left before they were read."""
    more_locals: int
    """How many there are beyond those."""

    @property
    def locals_text(self) -> str | None:
        """The locals as one JSON object of texts, as tables have them."""
        if self.locals is None:
            return None
        return json.dumps({name: local.value for name, local in self.locals.items()}, ensure_ascii=False)


@dataclass(frozen=True)
class Thread:
    """One thread and its stack."""

    thread_id: int | None
    """The kernel's id."""
    ident: int
    """Python's id, ``threading.get_ident()``."""
    thread_name: str | None
    main: bool
    state: str
    """``running``, ``asleep``, ``stopped``, or the system call that it waits in."""
    gil: str
    """``holds``, ``waits`` or ``free``."""
    complete: bool
    """False when it moved too fast to be read whole: then only the frames that stayed are here."""
    frames: tuple[Frame, ...]
    """Innermost first."""


@dataclass(frozen=True)
class Wait:
    """What a task waits for."""

    kind: str
    """``sleep``, ``lock``, ``queue_get``, ``task``, ``future`` and others."""
    tasks: tuple[int, ...]
    """Ids of the tasks, if it waits for some."""
    held_by: tuple[int, ...]
    """For a lock: ids of the tasks that hold it."""


@dataclass(frozen=True)
class Task:
    """A task of asyncio that is not done."""

    name: str
    id: int
    """Python's ``id(task)``."""
    state: str
    """``running``, ``waiting`` or ``ready``."""
    coroutine: str
    """The function that it runs."""
    waits_for: Wait | None
    awaited_by: tuple[int, ...]
    """Ids of the tasks that wait for it."""
    thread_id: int | None
    """The kernel's id of the thread of its loop."""
    thread_name: str | None
    complete: bool
    """False when it moved too fast to be read whole: then only the frames that stayed are here."""
    frames: tuple[Frame, ...]
    """Innermost first."""


class Backtrace:
    """Where threads of a target are, or its asyncio tasks, read from outside at one moment."""

    _THREAD = ("thread_id", "ident", "thread_name", "main", "state", "gil")
    _TASK = ("task_id", "task_name", "task_state", "thread_id", "thread_name")
    _FRAME = ("depth", "func", "file", "lineno", "frame_type", "source")

    def __init__(self, text: str, report: Mapping[str, Any]) -> None:
        self.text = text
        """As ``probing backtrace`` prints it."""
        self.threads: tuple[Thread, ...] = tuple(map(_thread, report.get("threads", ())))
        """The main thread first. None when tasks were asked for."""
        self.tasks: tuple[Task, ...] = tuple(map(_task, report.get("tasks", ())))
        """By their names, when they were asked for."""
        self.deadlocks: tuple[tuple[int, ...], ...] = tuple(map(tuple, report.get("deadlocks", ())))
        """Ids of tasks that wait for each other in a circle."""
        self._of = self._TASK if "tasks" in report else ("thread_id", "thread_name")

    def to_table(self) -> Table:
        """A row for each frame; locals as JSON. The first columns say whose frame it is."""
        stacks: tuple[Thread | Task, ...] = (*self.threads, *self.tasks)
        return Table(
            (*self._of, *self._FRAME, "locals"),
            [
                (
                    *(getattr(stack, name.removeprefix("task_")) for name in self._of),
                    *(getattr(frame, name) for name in self._FRAME),
                    frame.locals_text,
                )
                for stack in stacks
                for frame in stack.frames
            ],
        )

    def to_threads(self) -> Table:
        """A row for each thread, without its frames."""
        return Table(self._THREAD, [tuple(getattr(thread, name) for name in self._THREAD) for thread in self.threads])

    def to_pandas(self) -> DataFrame:
        """A ``pandas.DataFrame`` with a row for each frame, when pandas is installed."""
        return self.to_table().to_pandas()

    def to_arrow(self) -> ArrowTable:
        """A ``pyarrow.Table`` with a row for each frame, when pyarrow is installed."""
        return self.to_table().to_arrow()

    def __repr__(self) -> str:
        return _visible.lines(self.text.rstrip())

    def _repr_html_(self) -> str:
        return _preformatted(self.text)


for _public in (Backtrace, EvalResult, Table):
    _public.__module__ = "probing"


def literal(text: str) -> object:
    """The value that ``text`` writes, when it is made of literals; else ``text``."""
    # What cannot be one is not even parsed: the parser warns about what it finds odd in it.
    if not text.startswith(("(", "[", "{", "'", '"', "-", "b'", 'b"', *"0123456789")) and text not in _NAMED:
        return text
    try:
        return ast.literal_eval(_Numbers().visit(ast.parse(text, mode="eval")))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


_NAMED = {"True", "False", "None", "set()", "nan", "inf"}


class _Numbers(ast.NodeTransformer):
    """Floats that have a ``repr`` but no literal."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float(node.id)) if node.id in ("nan", "inf") else node


def _thread(told: Mapping[str, Any]) -> Thread:
    return _built(Thread, {**told, "frames": tuple(map(_frame, told["frames"]))})


def _task(told: Mapping[str, Any]) -> Task:
    waits_for = told["waits_for"]
    if waits_for is not None:
        kind, tasks, held_by = waits_for["kind"], tuple(waits_for["tasks"]), tuple(waits_for["held_by"])
        waits_for = Wait(kind, tasks, held_by)
    parts = {
        "waits_for": waits_for,
        "awaited_by": tuple(told["awaited_by"]),
        "frames": tuple(map(_frame, told["frames"])),
    }
    return _built(Task, {**told, **parts})


def _frame(told: Mapping[str, Any]) -> Frame:
    locals = told["locals"]
    if locals is not None:
        locals = {local["name"]: _built(Local, local) for local in locals}
    return _built(Frame, {**told, "locals": locals})


def _built(kind: type[_Built], told: Mapping[str, Any]) -> _Built:
    """A dataclass from fields of JSON; unknown fields of a newer command are ignored."""
    return kind(**{field.name: told[field.name] for field in fields(kind)})  # type: ignore[arg-type]


def _cell(value: object) -> str:
    text = "" if value is None else _visible.line(str(value))
    return text if len(text) <= _WIDEST_CELL else text[: _WIDEST_CELL - 1] + "…"


def _preformatted(text: str) -> str:
    return f"<pre>{html.escape(_visible.lines(text))}</pre>"


def _needed(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ModuleNotFoundError(
            f"{module} is not installed here: pip install {module}, or use .columns and .rows, which need nothing",
            name=module,
        ) from None
