//! Runs source in a process: `attach PID SOURCE [DEADLINE_MS [DIE_AT_STEP [force]]]`.
//!
//! Also what tests kill.
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use std::process::ExitCode;
use std::time::Duration;

use probing_attach::{AttachError, Options, Report};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match attach(&arguments) {
        Some(Ok(report)) => {
            let Report {
                strategy,
                python,
                paused,
                took,
            } = report;
            let (major, minor) = python;
            println!("ran: Python {major}.{minor}, {strategy}, paused {paused:?}, took {took:?}");
            ExitCode::SUCCESS
        }
        Some(Err(error)) => {
            println!("error: {error}");
            if let Some(hint) = error.hint() {
                println!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
        None => {
            println!("usage: attach PID SOURCE [DEADLINE_MS [DIE_AT_STEP [force]]]");
            ExitCode::from(2)
        }
    }
}

fn attach(arguments: &[String]) -> Option<Result<Report, AttachError>> {
    let pid = arguments.first()?.parse().ok()?;
    let source = arguments.get(1)?;
    let mut options = Options::default();
    if let Some(millis) = arguments.get(2).and_then(|text| text.parse().ok()) {
        options.deadline = Duration::from_millis(millis);
    }
    options.die_at_step = arguments
        .get(3)
        .and_then(|text| text.parse().ok())
        .filter(|step| *step > 0);
    options.force = arguments.get(4).is_some();
    Some(probing_attach::run(pid, source, &options))
}
