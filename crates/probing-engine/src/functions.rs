//! Functions that debugging needs beside those of SQL.

mod bounded;
mod duration;
mod joined;
mod stack;

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::prelude::SessionContext;

/// A function, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    pub call: &'static str,
    pub doc: &'static str,
    pub example: &'static str,
}

/// Those of ours, and those of the engine that are easily missed.
pub const ALL: [Function; 5] = [
    Function {
        call: "duration(nanoseconds)",
        doc: "a duration as text: `1.5 ms`, `2 h 3 min`",
        example: "SELECT name, duration(user_ns) AS cpu FROM process.threads ORDER BY user_ns DESC",
    },
    Function {
        call: "stack(func, depth)",
        doc: "the frames of one thread as one line, the outermost first: `main;train;step`. An aggregate: group by thread",
        example: "SELECT thread_name, stack(func, depth) AS stack FROM python.backtrace GROUP BY pid, thread_id, thread_name",
    },
    Function {
        call: "approx_percentile_cont(0.99) WITHIN GROUP (ORDER BY x)",
        doc: "a percentile; `approx_median(x)` is the median",
        example: "SELECT approx_percentile_cont(0.9) WITHIN GROUP (ORDER BY depth) AS p90 FROM python.backtrace",
    },
    Function {
        call: "date_bin(INTERVAL '10 seconds', t)",
        doc: "the start of the interval that contains `t`",
        example: "SELECT date_bin(INTERVAL '1 hour', started_at) AS hour, count(*) AS threads FROM process.threads GROUP BY 1",
    },
    Function {
        call: "now()",
        doc: "the current time, in UTC",
        example: "SELECT pid, now() - started_at AS age FROM process.info",
    },
];

pub(crate) fn register(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(duration::Duration::new()));
    for bounded in bounded::Bounded::all() {
        context.register_udf(ScalarUDF::from(bounded));
    }
    context.register_udaf(AggregateUDF::from(stack::Stack::new()));
    context.register_udaf(AggregateUDF::clone(&joined::joined()));
}
