//! Starts the targets of `tests/targets/stacks` and reads their stacks.

use probing_proto::process::Pid;
use probing_stacks::{Frame, Options, Snapshot, StackError, ThreadStack};
use probing_testkit::{Python, Sandbox, Target, root};

/// `(function, line)`
pub(crate) type Place = (String, u32);

/// Starts `tests/targets/stacks/<program>`.
pub(crate) fn start(python: &Python, program: &str) -> Target {
    Sandbox::new("none")
        .target(python, &format!("stacks/{program}"))
        .start()
}

pub(crate) fn read(pid: u32) -> Snapshot {
    try_read(pid).unwrap()
}

pub(crate) fn try_read(pid: u32) -> Result<Snapshot, StackError> {
    probing_stacks::read(Pid(pid), &Options::default())
}

/// Function and line of frames, innermost first.
pub(crate) fn places(frames: &[Frame]) -> Vec<Place> {
    let place = |frame: &Frame| (frame.func.to_string(), frame.line.unwrap_or(0));
    frames.iter().map(place).collect()
}

/// The main thread.
pub(crate) fn main_of(snapshot: &Snapshot) -> &ThreadStack {
    let main = &snapshot.threads[0];
    assert!(main.is_main, "{main:?}");
    main
}

/// The line of a program that bears a mark.
pub(crate) fn line_of(program: &str, mark: &str) -> u32 {
    let path = root().join("tests/targets/stacks").join(program);
    let text = std::fs::read_to_string(path).unwrap();
    let mark = format!("# @{mark}");
    let line = text.lines().position(|line| line.ends_with(&mark));
    line.unwrap() as u32 + 1
}
