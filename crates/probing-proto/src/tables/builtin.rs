//! Tables that Probing itself records in a process.
//!
//! They are there for SQL even where nothing was recorded.

mod collectives;
mod memory;
mod steps;

use crate::tables::schema::{Column, Kind, TIME};

pub use self::collectives::COLLECTIVES;
pub use self::memory::{HEAP, MEMORY};
pub use self::steps::STEPS;

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct OwnTable {
    pub name: &'static str,
    pub doc: &'static str,
    /// What its time means.
    time: &'static str,
    /// A query of it.
    pub example: &'static str,
    columns: &'static [OwnColumn],
}

type OwnColumn = (&'static str, Kind, Presence, &'static str);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Always,
    Perhaps,
}

use Presence::{Always, Perhaps};

const THREAD: OwnColumn = (
    "thread_id",
    Kind::U32,
    Always,
    "the kernel's id of the thread",
);
const THREAD_NAME: OwnColumn = ("thread_name", Kind::Symbol, Always, "its name");
const POINT: OwnColumn = (
    "point",
    Kind::U32,
    Perhaps,
    "the breakpoint or watch, as `probing breakpoints` numbers it",
);
const FUNC: OwnColumn = ("func", Kind::Symbol, Perhaps, "the function that ran");
const FILE: OwnColumn = ("file", Kind::Symbol, Perhaps, "its file");
const LINENO: OwnColumn = ("lineno", Kind::U32, Perhaps, "the line that ran");
const STEP: OwnColumn = (
    "step",
    Kind::I64,
    Perhaps,
    "the step of the training, where it is known",
);

/// Spans and events, of the program and of tracers.
pub const TRACE_EVENT: OwnTable = OwnTable {
    name: "python.trace_event",
    doc: "Spans and events of the program, and what tracers saw.",
    time: "when it was recorded; of a span, when it began",
    example: "SELECT name, count(*) AS spans, duration(max(duration_ns)) AS longest FROM python.trace_event WHERE kind = 'span' GROUP BY name ORDER BY max(duration_ns) DESC LIMIT 10",
    columns: &[
        (
            "kind",
            Kind::Symbol,
            Always,
            "`begin` when a span is entered, `span` when it is left (`ts` is when it began), `event`; of tracers: `call`, `return`, `yield`, `resume`, `exception` for a function that was left by one, and `line` for a line that it came to",
        ),
        (
            "name",
            Kind::Symbol,
            Always,
            "what the program calls it; of tracers, the function",
        ),
        THREAD,
        (
            "span_id",
            Kind::I64,
            Perhaps,
            "the span, unique in its process",
        ),
        ("parent_id", Kind::I64, Perhaps, "the span around it"),
        (
            "duration_ns",
            Kind::I64,
            Perhaps,
            "how long a span that was left lasted; of tracers, how long the function ran since its call, or since it was resumed; of a line, until the next one of that function, or its end",
        ),
        (
            "error",
            Kind::Text,
            Perhaps,
            "the exception that a span was left by",
        ),
        (
            "attributes",
            Kind::Text,
            Perhaps,
            "what the program said about it, as JSON",
        ),
        (
            "file",
            Kind::Symbol,
            Perhaps,
            "of tracers: the function's file",
        ),
        (
            "lineno",
            Kind::U32,
            Perhaps,
            "of tracers: the line where the function begins; of a `line`, that one",
        ),
        (
            "func",
            Kind::Symbol,
            Perhaps,
            "of tracers: the function, as in `name`",
        ),
        (
            "depth",
            Kind::U32,
            Perhaps,
            "of tracers: how many traced functions the thread was in already",
        ),
        STEP,
    ],
};

/// What log points and snapshot points saw, and what stops that expired left.
pub const CAPTURES: OwnTable = OwnTable {
    name: "python.captures",
    doc: "Log lines and snapshots that breakpoints recorded, and stacks of stops that timed out.",
    time: "when it was seen",
    example: "SELECT ts, point, text, file, lineno FROM python.captures ORDER BY ts DESC LIMIT 10",
    columns: &[
        POINT,
        (
            "kind",
            Kind::Symbol,
            Always,
            "`log`, `snapshot`, or `expired` for a stop that timed out",
        ),
        (
            "text",
            Kind::Text,
            Perhaps,
            "the log line; the reason of a stop",
        ),
        THREAD,
        THREAD_NAME,
        FUNC,
        FILE,
        LINENO,
        STEP,
        (
            "frames",
            Kind::Text,
            Perhaps,
            "the stack with bounded locals, innermost first, as JSON",
        ),
    ],
};

/// Changes of what is watched.
pub const VARIABLES: OwnTable = OwnTable {
    name: "python.variables",
    doc: "Every change that a watch saw: of a variable, an attribute, an item, a tensor, bytes of memory.",
    time: "when it was seen",
    example: "SELECT ts, name, old, new, file, lineno FROM python.variables WHERE name = 'lr' ORDER BY ts DESC LIMIT 10",
    columns: &[
        POINT,
        ("name", Kind::Symbol, Always, "watched variable"),
        (
            "old",
            Kind::Text,
            Perhaps,
            "its value before, in bounded words; none when it was not bound, or not seen before",
        ),
        (
            "new",
            Kind::Text,
            Perhaps,
            "its value since; none when it was deleted",
        ),
        FUNC,
        FILE,
        LINENO,
        THREAD,
        THREAD_NAME,
        STEP,
        (
            "operation",
            Kind::Symbol,
            Perhaps,
            "operation that changed a tensor in place, as far as the line shows it",
        ),
    ],
};

/// Exceptions that were caught sight of.
pub const EXCEPTIONS: OwnTable = OwnTable {
    name: "python.exceptions",
    doc: "Exceptions, as `break --raise` and `break --uncaught` saw them at the moment of raising.",
    time: "when it was raised, or found to be uncaught",
    example: "SELECT exception, message, file, lineno, count(*) AS times FROM python.exceptions GROUP BY exception, message, file, lineno ORDER BY times DESC LIMIT 10",
    columns: &[
        POINT,
        (
            "kind",
            Kind::Symbol,
            Always,
            "`raised`; or of an uncaught one where it ended: `main`, `thread`, `task`, `unraisable`",
        ),
        (
            "exception",
            Kind::Symbol,
            Always,
            "its class, with its module",
        ),
        ("message", Kind::Text, Perhaps, "message"),
        THREAD,
        THREAD_NAME,
        FUNC,
        FILE,
        LINENO,
        STEP,
        (
            "chain",
            Kind::Text,
            Perhaps,
            "the exceptions that it came from, nearest first, as JSON",
        ),
        (
            "frames",
            Kind::Text,
            Perhaps,
            "the stack of the moment with bounded locals, innermost first, as JSON",
        ),
    ],
};

const TRACE: OwnColumn = (
    "trace",
    Kind::U32,
    Always,
    "the trace, as `probing trace --list` numbers it",
);

/// Sums of traced functions.
pub const TRACE_STATS: OwnTable = OwnTable {
    name: "python.trace_stats",
    doc: "Sums of traced functions: for each, about one row a second in which it was called. Add them up.",
    time: "when the sums were taken",
    example: "SELECT func, sum(calls) AS calls, duration(sum(self_ns)) AS own_time FROM python.trace_stats GROUP BY func ORDER BY sum(self_ns) DESC LIMIT 10",
    columns: &[
        TRACE,
        ("func", Kind::Symbol, Always, "the function"),
        ("file", Kind::Symbol, Always, "its file"),
        ("lineno", Kind::U32, Always, "the line where it begins"),
        (
            "calls",
            Kind::I64,
            Always,
            "calls that have ended since the row before; of generators and coroutines, times that they ran",
        ),
        ("errors", Kind::I64, Always, "those that an exception ended"),
        ("total_ns", Kind::I64, Always, "how long they took"),
        (
            "self_ns",
            Kind::I64,
            Always,
            "the same, without traced functions that they called",
        ),
        ("min_ns", Kind::I64, Always, "the shortest"),
        ("max_ns", Kind::I64, Always, "the longest"),
        (
            "histogram",
            Kind::Text,
            Always,
            "`[[1024, 3], …]`: three took at least 1024 ns and less than twice as long",
        ),
    ],
};

/// What tracing has cost, and what was done about it.
pub const PROBE_BUDGET: OwnTable = OwnTable {
    name: "python.probe_budget",
    doc: "What traces cost, whenever one of them would have cost more than it may.",
    time: "when it was noticed",
    example: "SELECT ts, action, share, budget, events FROM python.probe_budget ORDER BY ts DESC LIMIT 10",
    columns: &[
        TRACE,
        (
            "action",
            Kind::Symbol,
            Always,
            "`mute`: the functions that are called most are throttled; `resume`: all are recorded again",
        ),
        (
            "budget",
            Kind::F64,
            Always,
            "the share of the process's CPU time that the trace may cost",
        ),
        (
            "share",
            Kind::F64,
            Always,
            "the share that it has cost since it began",
        ),
        ("events", Kind::I64, Always, "events since it began"),
        (
            "event_ns",
            Kind::F64,
            Always,
            "cost of one event, as measured in this process",
        ),
        (
            "muted",
            Kind::U32,
            Always,
            "functions that are throttled at that moment",
        ),
    ],
};

/// What modules and optimizers of torch do.
pub const TORCH_TRACE: OwnTable = OwnTable {
    name: "python.torch_trace",
    doc: "What a training does: modules, backward passes and steps of optimizers, as `probing torch on` records them.",
    time: "when it happened",
    example: "SELECT module, stage, avg(duration) AS avg_time FROM python.torch_trace WHERE step > (SELECT max(step) - 5 FROM python.torch_trace) GROUP BY module, stage ORDER BY avg_time DESC LIMIT 10",
    columns: &[
        (
            "step",
            Kind::I64,
            Always,
            "the step of the training; one ends with a step of the optimizer",
        ),
        ("seq", Kind::I64, Always, "the row's number in its step"),
        (
            "module",
            Kind::Symbol,
            Always,
            "the module's name in its model, like `layers.3.mlp`; of a model itself, of a step, its class",
        ),
        ("class", Kind::Symbol, Always, "its class"),
        (
            "stage",
            Kind::Symbol,
            Always,
            "`pre` or `post`, and `forward`, `backward` or `step`",
        ),
        (
            "duration",
            Kind::F64,
            Always,
            "seconds since its `pre`; 0 where it begins. On a GPU: until its work was handed over, not until it was done",
        ),
        ("duration_ns", Kind::I64, Always, "the same in nanoseconds"),
        (
            "allocated",
            Kind::I64,
            Perhaps,
            "bytes that tensors have on the GPU, where it was read",
        ),
        (
            "max_allocated",
            Kind::I64,
            Perhaps,
            "the most that they ever had",
        ),
        (
            "root",
            Kind::Symbol,
            Perhaps,
            "the class of the model that it belongs to",
        ),
        THREAD,
    ],
};

/// How the numbers of tensors lie.
pub const TENSORS: OwnTable = OwnTable {
    name: "python.tensors",
    doc: "Statistics of parameters, gradients and activations, as `probing torch on --tensors` and `probing watch-nan` record them. \
          Least, greatest, mean, deviation and norm are those of the finite numbers.",
    time: "time of the check",
    example: "SELECT step, kind, name, nan, inf, norm FROM python.tensors WHERE nan > 0 OR inf > 0 ORDER BY step, ts LIMIT 10",
    columns: &[
        STEP,
        (
            "kind",
            Kind::Symbol,
            Always,
            "`parameter`, `gradient`, `input` or `output`",
        ),
        (
            "name",
            Kind::Symbol,
            Always,
            "the parameter's name in its model, `layers.0.weight`; of inputs and outputs, the module's",
        ),
        (
            "module",
            Kind::Symbol,
            Always,
            "the module that has it, gives it or takes it",
        ),
        ("class", Kind::Symbol, Always, "the module's class"),
        (
            "file",
            Kind::Symbol,
            Perhaps,
            "the file of the module's `forward`, where that is Python code",
        ),
        ("lineno", Kind::I64, Perhaps, "the line there"),
        ("dtype", Kind::Symbol, Always, "the kind of its numbers"),
        ("shape", Kind::Symbol, Always, "how many in each dimension"),
        ("device", Kind::Symbol, Always, "where it is"),
        ("count", Kind::I64, Always, "how many numbers it has"),
        ("min", Kind::F64, Perhaps, "the least"),
        ("max", Kind::F64, Perhaps, "the greatest"),
        ("mean", Kind::F64, Perhaps, "their mean"),
        ("std", Kind::F64, Perhaps, "their standard deviation"),
        (
            "norm",
            Kind::F64,
            Perhaps,
            "the root of the sum of their squares",
        ),
        ("nan", Kind::I64, Always, "how many are no numbers"),
        ("inf", Kind::I64, Always, "how many are infinite"),
        (
            "zero_share",
            Kind::F64,
            Perhaps,
            "how much of it is zero, from 0 to 1",
        ),
        (
            "finding",
            Kind::I64,
            Perhaps,
            "which finding of `watch-nan` it belongs to, from 1 on",
        ),
        (
            "role",
            Kind::Symbol,
            Perhaps,
            "in a finding: `found`, or `context` for its inputs",
        ),
        (
            "counted_by",
            Kind::Symbol,
            Perhaps,
            "counter of steps: `program`, or `optimizer` if they are counted since recording began",
        ),
    ],
};

pub const ALL: [OwnTable; 12] = [
    TRACE_EVENT,
    TRACE_STATS,
    PROBE_BUDGET,
    CAPTURES,
    VARIABLES,
    EXCEPTIONS,
    TORCH_TRACE,
    TENSORS,
    STEPS,
    MEMORY,
    HEAP,
    COLLECTIVES,
];

/// The own table that is called so, in whatever case.
pub fn named(name: &str) -> Option<OwnTable> {
    ALL.into_iter()
        .find(|table| table.name.eq_ignore_ascii_case(name))
}

impl OwnTable {
    /// Its columns beside its time.
    pub fn columns(&self) -> Vec<Column> {
        self.columns.iter().map(column).collect()
    }

    /// All its columns, its time first.
    pub fn all_columns(&self) -> Vec<Column> {
        let time = (TIME, Kind::Time, Always, self.time);
        std::iter::once(&time)
            .chain(self.columns)
            .map(column)
            .collect()
    }
}

fn column(&(name, kind, presence, doc): &OwnColumn) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        nullable: presence == Perhaps,
        doc: doc.to_owned(),
    }
}
