//! `python.steps`: the ends of training steps, aligned over ranks.

use crate::tables::builtin::{Always, OwnTable, Perhaps};
use crate::tables::schema::Kind;

/// Ends of steps.
pub const STEPS: OwnTable = OwnTable {
    name: "python.steps",
    doc: "Ends of steps of the training, while `probing torch on` or the program (`probing.step()`) counts them. Rows of several ranks of a job \
          have the same `step` for the same step, in every table: ranks are aligned by `operations`, else by the time at which steps ended.",
    time: "when the step ended",
    example: "SELECT step, max(ts) - min(ts) AS apart FROM python.steps GROUP BY step ORDER BY step DESC LIMIT 10",
    columns: &[
        ("step", Kind::I64, Always, "the step that ended"),
        (
            "counted_by",
            Kind::Symbol,
            Always,
            "`optimizer`, or `program` where it calls `probing.step()`: its numbers are used as they are",
        ),
        (
            "period",
            Kind::I64,
            Always,
            "which period of counting it belongs to: one ends with `torch off`",
        ),
        (
            "job",
            Kind::Symbol,
            Perhaps,
            "where the ranks of the job met, as in `python.collectives`",
        ),
        (
            "operations",
            Kind::I64,
            Perhaps,
            "operations of the group of all ranks so far, as torch counts them: the same on all ranks at the end of the same step",
        ),
    ],
};
