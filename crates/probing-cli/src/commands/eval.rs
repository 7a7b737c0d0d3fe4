//! `probing -t PID eval CODE`

mod set;

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use probing_client::{Canceller, EvalEnd, Probe, Target};
use probing_proto::message::{Evaluated, Outcome, Raised, Stream};
use probing_proto::report::EvalReport;

use super::Aim;
use crate::arguments::EvalArguments;
use crate::exit::{self, Status};

pub(crate) fn run(arguments: &EvalArguments, aim: &Aim) -> anyhow::Result<Status> {
    let several = set::several(arguments, aim)?;
    let code = Code {
        code: code(arguments)?,
        timeout: Some(arguments.timeout).filter(|timeout| !timeout.is_zero()),
    };
    if let Some(members) = several {
        return set::run(arguments, &members, aim.entry.clone(), code);
    }
    let Code { code, timeout } = code;
    let mut probe = aim.connect()?;
    let eval = probe.start_eval(code)?;
    let interrupted = cancel_on_interrupt(eval.clone())?;
    let end = if arguments.json {
        collect(&mut probe, &eval, timeout)?
    } else {
        stream(aim, &mut probe, &eval, timeout)?
    };
    if interrupted.load(Ordering::Acquire) {
        return Ok(exit::INTERRUPTED);
    }
    Ok(end)
}

/// What to run, and for how long.
struct Code {
    code: String,
    timeout: Option<Duration>,
}

fn code(arguments: &EvalArguments) -> anyhow::Result<String> {
    if let Some(file) = &arguments.file {
        return std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()));
    }
    match arguments.code.as_deref() {
        Some("-") | None => {
            let mut code = String::new();
            io::stdin()
                .read_to_string(&mut code)
                .context("cannot read standard input")?;
            Ok(code)
        }
        Some(code) => Ok(code.to_owned()),
    }
}

/// The first Ctrl-C interrupts the remote code and waits for its answer, the second leaves at once.
fn cancel_on_interrupt(eval: Canceller) -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::<AtomicBool>::default();
    let pressed = Arc::clone(&interrupted);
    ctrlc::set_handler(move || {
        // A target that cannot be told any more is gone; the main thread notices.
        let told = !pressed.swap(true, Ordering::AcqRel) && eval.cancel().is_ok();
        if !told {
            leave();
        }
    })?;
    Ok(interrupted)
}

/// Ends the command without waiting for anybody.
fn leave() {
    #[expect(
        clippy::disallowed_methods,
        clippy::exit,
        reason = "the main thread waits for the target"
    )]
    std::process::exit(exit::INTERRUPTED.0.into());
}

/// Shows output as it comes, then the value or the traceback.
fn stream(
    aim: &Aim,
    probe: &mut Probe,
    eval: &Canceller,
    timeout: Option<Duration>,
) -> anyhow::Result<Status> {
    // What cannot be written (a closed pipe) is not worth keeping the target's code waiting for.
    let end = probe.finish_eval(eval, timeout, |stream, text| {
        match stream {
            Stream::Stdout => write_now(&mut io::stdout().lock(), text),
            Stream::Stderr => write_now(&mut io::stderr().lock(), text),
        }
        .ok();
    })?;
    match end {
        EvalEnd::Evaluated(evaluated) => show(evaluated),
        EvalEnd::TimedOut(_) => {
            say_timed_out(timeout, "the code was interrupted")?;
            Ok(exit::TIMED_OUT)
        }
        EvalEnd::Stuck { begun } => {
            say_timed_out(timeout, &why_stuck(&aim.target()?, begun))?;
            Ok(exit::TIMED_OUT)
        }
    }
}

/// Why code did not end when it was interrupted, or did not begin.
pub(super) fn why_stuck(target: &Target, begun: bool) -> String {
    if begun {
        return "the code is inside a C call and ends when that returns".to_owned();
    }
    let who = target.gil_holder();
    let who = who
        .as_deref()
        .unwrap_or("another thread of the target holds the GIL");
    format!("the code has not begun and will not run: {who}")
}

fn show(evaluated: Evaluated) -> anyhow::Result<Status> {
    match evaluated.outcome {
        Outcome::Finished { value } => {
            if let Some(value) = value {
                writeln!(io::stdout(), "{value}")?;
            }
            Ok(exit::OK)
        }
        Outcome::Raised(Raised { traceback, .. }) => {
            io::stderr().write_all(traceback.as_bytes())?;
            Ok(exit::FAILED)
        }
        Outcome::SyntaxError { text } => {
            io::stderr().write_all(text.as_bytes())?;
            Ok(exit::SYNTAX_ERROR)
        }
    }
}

/// Waits for the end and prints it all as one JSON object.
fn collect(
    probe: &mut Probe,
    eval: &Canceller,
    timeout: Option<Duration>,
) -> anyhow::Result<Status> {
    let (report, status) = finished(probe, eval, timeout)?;
    writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&report)?)?;
    Ok(status)
}

/// Waits for the end.
fn finished(
    probe: &mut Probe,
    eval: &Canceller,
    timeout: Option<Duration>,
) -> anyhow::Result<(EvalReport, Status)> {
    let pid = probe.hello().pid;
    let mut output = String::new();
    let end = probe.finish_eval(eval, timeout, |_, text| output.push_str(text))?;
    let (evaluated, status) = match end {
        EvalEnd::Evaluated(evaluated) => {
            let status = status(&evaluated.outcome);
            (evaluated, status)
        }
        EvalEnd::TimedOut(evaluated) => (evaluated, exit::TIMED_OUT),
        EvalEnd::Stuck { .. } => {
            let took_nanos = timeout.unwrap_or_default().as_nanos() as u64;
            let outcome = Outcome::Finished { value: None };
            (
                Evaluated {
                    took_nanos,
                    outcome,
                },
                exit::TIMED_OUT,
            )
        }
    };
    let report = EvalReport::new(pid, output, evaluated, status == exit::TIMED_OUT);
    Ok((report, status))
}

fn status(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Finished { .. } => exit::OK,
        Outcome::Raised(_) => exit::FAILED,
        Outcome::SyntaxError { .. } => exit::SYNTAX_ERROR,
    }
}

fn say_timed_out(timeout: Option<Duration>, what_became_of_it: &str) -> io::Result<()> {
    let seconds = timeout.unwrap_or_default().as_secs_f64();
    writeln!(
        anstream::stderr(),
        "error: timed out after {seconds} s: {what_became_of_it}"
    )?;
    writeln!(
        anstream::stderr(),
        "hint: allow more time with --timeout SECONDS (0: no limit)"
    )
}

fn write_now(stream: &mut impl io::Write, text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes())?;
    stream.flush()
}
