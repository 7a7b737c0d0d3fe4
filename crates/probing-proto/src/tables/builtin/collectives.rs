//! What the ranks of a job do together.

use crate::tables::builtin::{Always, FILE, FUNC, LINENO, OwnTable, Perhaps, STEP, THREAD};
use crate::tables::schema::Kind;

/// What the ranks of a job do together.
pub const COLLECTIVES: OwnTable = OwnTable {
    name: "python.collectives",
    doc: "Operations of torch's process groups, those of DDP included: one row when it is enqueued, written before it begins, and one when it was seen to be over.",
    time: "when it was enqueued, of both rows",
    example: "SELECT op, rank, pid, count(*) AS calls, duration(max(duration_ns)) AS longest FROM python.collectives GROUP BY op, rank, pid ORDER BY max(duration_ns) DESC LIMIT 10",
    columns: &[
        (
            "state",
            Kind::Symbol,
            Always,
            "`enqueued`; `completed` or `failed` when it is over",
        ),
        (
            "job",
            Kind::Symbol,
            Perhaps,
            "rendezvous address of its ranks, which distinguishes jobs: `node7:29500`, a file; null if torch does not know it",
        ),
        (
            "group_name",
            Kind::Symbol,
            Always,
            "torch's name of the process group, the same on all its ranks",
        ),
        ("group_rank", Kind::I64, Always, "the rank in the group"),
        (
            "group_size",
            Kind::I64,
            Always,
            "how many ranks the group has",
        ),
        (
            "seq",
            Kind::I64,
            Perhaps,
            "the number of the operation in its group, the same on all its ranks; none for `send` and `recv`",
        ),
        (
            "op",
            Kind::Symbol,
            Always,
            "`allreduce`, `broadcast`, `barrier`, …",
        ),
        (
            "shapes",
            Kind::Symbol,
            Always,
            "of its tensors, the first four: `[128,64] [64]`",
        ),
        ("dtype", Kind::Symbol, Perhaps, "of its first tensor"),
        ("bytes", Kind::I64, Always, "of its tensors together"),
        (
            "root",
            Kind::I64,
            Perhaps,
            "the rank that it comes from or goes to",
        ),
        (
            "is_async",
            Kind::Bool,
            Always,
            "the caller does not wait for it at once",
        ),
        (
            "duration_ns",
            Kind::I64,
            Perhaps,
            "from then until it was seen to be done: when the call that waits for it returned, else at the next operation or second",
        ),
        THREAD,
        FUNC,
        FILE,
        LINENO,
        STEP,
    ],
};
