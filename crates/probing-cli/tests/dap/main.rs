//! The debug adapter as an editor sees it, on real processes of every Python.
#![expect(clippy::unwrap_used, reason = "a test")]

mod clients;
mod editor;
mod requests;
mod session;

use probing_testkit::{Sandbox, root};

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_probing"))
}

fn program() -> String {
    root().join("tests/targets/steps.py").display().to_string()
}

/// The line of `steps.py` that is marked so.
fn line(mark: &str) -> i64 {
    let source = std::fs::read_to_string(program()).unwrap();
    let mark = format!("# @{mark}");
    let mut lines = source.lines();
    1 + lines.position(|line| line.ends_with(&mark)).unwrap() as i64
}
