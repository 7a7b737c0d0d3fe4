//! Memory over time, and where it came from.

use crate::tables::builtin::{Always, FILE, FUNC, LINENO, OwnTable, Perhaps, STEP};
use crate::tables::schema::Kind;

/// The process's memory over time.
pub const MEMORY: OwnTable = OwnTable {
    name: "python.memory",
    doc: "Memory over time: once a second and at every step of a training, while `probing memory on`, `PROBING_MEMORY` or `probing.trace(\"memory_usage\")` asks for it.",
    time: "when it was measured",
    example: "SELECT ts, step, rss / 1048576 AS rss_mb, python_heap / 1048576 AS python_mb FROM python.memory ORDER BY ts DESC LIMIT 10",
    columns: &[
        (
            "kind",
            Kind::Symbol,
            Always,
            "`second`; `step` when a step of the training began; `stuck` for a second in which the main thread ran no Python",
        ),
        (
            "rss",
            Kind::I64,
            Perhaps,
            "bytes of memory that the process has, as the kernel counts them",
        ),
        (
            "python_heap",
            Kind::I64,
            Perhaps,
            "bytes in use of those that Python's allocators gave out since `python.heap` is sampled, estimated",
        ),
        (
            "python_blocks",
            Kind::I64,
            Perhaps,
            "blocks in use of Python's allocator of small objects (`sys.getallocatedblocks()`)",
        ),
        (
            "gc_0",
            Kind::I64,
            Perhaps,
            "the garbage collector's count of its youngest generation (`gc.get_count()`)",
        ),
        ("gc_1", Kind::I64, Perhaps, "of the next"),
        ("gc_2", Kind::I64, Perhaps, "of the oldest"),
        (
            "torch_allocated",
            Kind::I64,
            Perhaps,
            "bytes of tensors on the current CUDA device; none when torch uses none",
        ),
        (
            "torch_reserved",
            Kind::I64,
            Perhaps,
            "bytes that torch's allocator holds there",
        ),
        STEP,
    ],
};

/// Where bytes in use came from.
pub const HEAP: OwnTable = OwnTable {
    name: "python.heap",
    doc: "Where the bytes came from that are in use, by samples of allocations: every ten seconds one row for each stack, all with the same time.",
    time: "time of the sample; rows of one sample have the same time",
    example: "SELECT func, file, lineno, max(live_bytes) AS live FROM python.heap GROUP BY func, file, lineno ORDER BY live DESC LIMIT 10",
    columns: &[
        (
            "live_bytes",
            Kind::I64,
            Always,
            "bytes in use that this stack allocated since sampling began, estimated",
        ),
        (
            "live_blocks",
            Kind::I64,
            Always,
            "how many blocks those are, estimated",
        ),
        (
            "samples",
            Kind::I64,
            Always,
            "how many samples say so; each stands for about 512 KiB",
        ),
        (
            "allocated_bytes",
            Kind::I64,
            Always,
            "bytes that this stack has allocated in all, estimated",
        ),
        FUNC,
        FILE,
        LINENO,
        (
            "stack",
            Kind::Text,
            Perhaps,
            "`func (file:line)`, innermost first, separated by `; `",
        ),
        STEP,
    ],
};
