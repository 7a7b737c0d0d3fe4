//! `python.breakpoints`: breakpoints and watchpoints with their hits.

use probing_proto::message::breakpoints::{Action, Breakpoint, BreakpointLocation};

use crate::columns::rows::RowsBuilder;
use crate::columns::{Kind, col};
use crate::snapshot::target_snapshot::{Needs, ReadFailure, TargetSnapshot};
use crate::tables::definition::Table;

pub(crate) const TABLE: Table = Table {
    name: "python.breakpoints",
    doc: "Breakpoints and watchpoints that are set, as `probing breakpoints` shows them. The probe reports them; a \
          process without a probe has none.",
    columns: &[
        col(
            "point",
            Kind::Int,
            "its number, as `probing delete` takes it",
        ),
        col(
            "kind",
            Kind::Text,
            "line, function, raise, uncaught, local, value, environment or memory",
        ),
        col("place", Kind::Text, "its place, as it was written"),
        col("condition", Kind::Text, "expression that must be true"),
        col("action", Kind::Text, "stop, log, snapshot or count"),
        col("text", Kind::Text, "text of the log line"),
        col(
            "func",
            Kind::Text,
            "function that it was found in, the first of several",
        ),
        col("file", Kind::Text, "file of that function"),
        col("lineno", Kind::Int, "line that it was bound to"),
        col(
            "places",
            Kind::Int,
            "number of places it was bound to; 0 while its code is not loaded",
        ),
        col(
            "hits",
            Kind::Int,
            "how often it was passed (with a condition: where that was true)",
        ),
        col("fired", Kind::Int, "how often something was done"),
        col(
            "dropped",
            Kind::Int,
            "log lines and snapshots left out, since there were too many in a second",
        ),
        col(
            "expires_in",
            Kind::Float,
            "seconds until it expires; null: never",
        ),
        col("cost", Kind::Text, "its cost to the program"),
        col(
            "told_by",
            Kind::Text,
            "mechanism: sys.monitoring, PyDict_Watch, sys.excepthook; before Python 3.12 bytecode instrumentation or a trace \
             function",
        ),
        col("note", Kind::Text, "why it cannot do all that it should"),
    ],
    example: "SELECT point, place, action, hits, fired FROM python.breakpoints ORDER BY hits DESC",
    needs: |_| Needs::default(),
    fill,
};

fn fill(seen: &TargetSnapshot, rows: &mut RowsBuilder) -> Result<(), ReadFailure> {
    for point in seen.points()? {
        let Breakpoint {
            request: armed,
            bound,
            ..
        } = point;
        let (kind, place) = place(&armed.place);
        let (action, text) = match &armed.action {
            Action::Stop => ("stop", None),
            Action::Log { text } => ("log", Some(text)),
            Action::Snapshot => ("snapshot", None),
            Action::Count => ("count", None),
        };
        let first = bound.first();
        let expires = point.expires_in_millis.map(|millis| millis as f64 / 1000.0);
        rows.push([
            point.point.0.into(),
            kind.into(),
            place.into(),
            armed.condition.as_ref().into(),
            action.into(),
            text.into(),
            first.map(|spot| &spot.func).into(),
            first.map(|spot| &spot.file).into(),
            first.map(|spot| spot.lineno).into(),
            bound.len().into(),
            point.hits.into(),
            point.fired.into(),
            point.dropped.into(),
            expires.into(),
            (&point.cost).into(),
            (&point.by).into(),
            point.note.as_ref().into(),
        ]);
    }
    Ok(())
}

/// Its kind, and how it is written.
fn place(place: &BreakpointLocation) -> (&'static str, String) {
    match place {
        BreakpointLocation::Line { file, line } => ("line", format!("{file}:{line}")),
        BreakpointLocation::Function { function } => ("function", function.clone()),
        BreakpointLocation::Raise { exception } => ("raise", exception.clone().unwrap_or_default()),
        BreakpointLocation::Uncaught => ("uncaught", String::new()),
        BreakpointLocation::Local { function, name } => ("local", format!("{function}:{name}")),
        BreakpointLocation::Value { path } => ("value", path.clone()),
        BreakpointLocation::Environment { name } => ("environment", name.clone()),
    }
}
