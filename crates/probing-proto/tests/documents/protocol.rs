//! What is said on the probe's socket.

use probing_proto::message::{Message, Request};

use crate::{check, check_kinds, parts};

#[test]
fn every_example_is_a_message() {
    check::<Request, Message>(&parts().0);
}

#[test]
fn every_kind_of_message_has_an_example() {
    let fields = [
        "op", "event", "outcome", "stream", "on", "do", "step", "why", "news", "because", "driver",
        "gone", "of",
    ];
    let all = [
        "eval",
        "locals",
        "memory",
        "file",
        "read",
        "complete",
        "completions",
        "describe",
        "described",
        "progress",
        "cancel",
        "detach",
        "torch",
        "tracer",
        "heap",
        "arm",
        "disarm",
        "points",
        "record",
        "guard_traps",
        "guarded",
        "trace",
        "untrace",
        "traces",
        "traced",
        "module",
        "stops",
        "follow",
        "drive",
        "step",
        "release",
        "source",
        "armed",
        "news",
        "line",
        "function",
        "raise",
        "uncaught",
        "local",
        "value",
        "stop",
        "log",
        "snapshot",
        "count",
        "over",
        "into",
        "out",
        "return",
        "until",
        "jump",
        "continue",
        "breakpoint",
        "asked",
        "returned",
        "changed",
        "stopped",
        "went_on",
        "driven",
        "environment",
        "logged",
        "disarmed",
        "deadline",
        "nobody",
        "you",
        "another",
        "keep",
        "resume",
        "hello",
        "output",
        "evaluated",
        "done",
        "cancelling",
        "failed",
        "finished",
        "raised",
        "syntax_error",
        "stdout",
        "stderr",
    ];
    check_kinds(&parts().0, &fields, &all);
}
