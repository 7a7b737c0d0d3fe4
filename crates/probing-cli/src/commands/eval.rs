//! `probing eval`: runs code in targets.

mod set;
pub(super) mod stuck;

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use probing_client::{Canceller, EvalEnd, EvalEvent, Probe, Target};
use probing_proto::message::{Eval, Evaluated, Outcome, Raised, Stream};
use probing_proto::report::EvalReport;

use crate::arguments::EvalArguments;
use crate::commands::TargetArgs;
use crate::errors::{self, CommandError};
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

pub(crate) fn run(arguments: &EvalArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let several = set::several(arguments, aim)?;
    let code = Code {
        eval: Eval {
            code: code(arguments)?,
            thread: arguments.thread.clone().map(String::from),
            frame: arguments.frame.clone(),
            max_output: Some(arguments.max_output),
            stop: None,
            keep: false,
            storage: false,
        },
        timeout: Some(arguments.timeout).filter(|timeout| !timeout.is_zero()),
    };
    if let Some(members) = several {
        return set::run(arguments, &members, aim.entry.clone(), code);
    }
    let target = aim.target()?;
    let probe = aim.connect_to(&target)?;
    let running = Running::start(target, probe, code)?;
    let interrupted = cancel_on_interrupt(running.eval.clone())?;
    let end = if arguments.json {
        running.collect()
    } else {
        running.stream()
    };
    match end {
        end if !interrupted.load(Ordering::Acquire) => end,
        Ok(_) => Ok(exit::INTERRUPTED),
        Err(error) if error.is::<CommandError>() => {
            errors::print(&error)?;
            Ok(exit::INTERRUPTED)
        }
        end => end,
    }
}

/// What to run, and for how long.
#[derive(Debug, Clone)]
struct Code {
    eval: Eval,
    timeout: Option<Duration>,
}

/// An eval that was started.
struct Running {
    target: Target,
    probe: Probe,
    eval: Canceller,
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
            exit::leave();
        }
    })?;
    Ok(interrupted)
}

impl Running {
    fn start(target: Target, probe: Probe, code: Code) -> anyhow::Result<Self> {
        let eval = probe.start_eval(code.eval)?;
        Ok(Self {
            target,
            probe,
            eval,
            timeout: code.timeout,
        })
    }

    /// Shows output as it comes, then the value or the traceback.
    fn stream(mut self) -> anyhow::Result<Status> {
        let target = &self.target;
        let on_news = |news: EvalEvent<'_>| show_news(target, news);
        let end = self.probe.finish_eval(&self.eval, self.timeout, on_news)?;
        match end {
            EvalEnd::Evaluated(evaluated) => show(evaluated),
            EvalEnd::TimedOut(evaluated) => {
                say_dropped(&evaluated)?;
                Err(self.timed_out("the code was interrupted", String::new()))
            }
            EvalEnd::Stuck(progress) => {
                let stuck = self.target.stuck(progress);
                Err(self.timed_out(&stuck.reason, stuck::stack(&stuck)))
            }
        }
    }

    /// Waits for the end and prints it all as one JSON object.
    fn collect(self) -> anyhow::Result<Status> {
        let (report, status) = self.finished()?;
        json::print(&report)?;
        Ok(status)
    }

    /// Waits for the end.
    fn finished(mut self) -> anyhow::Result<(EvalReport, Status)> {
        let pid = self.probe.hello().pid;
        let mut output = String::new();
        let on_news = |news: EvalEvent<'_>| {
            if let EvalEvent::Output(_, text) = news {
                output.push_str(text);
            }
        };
        let (evaluated, status, stuck) =
            match self.probe.finish_eval(&self.eval, self.timeout, on_news)? {
                EvalEnd::Evaluated(evaluated) => {
                    let status = status(&evaluated.outcome);
                    (evaluated, status, None)
                }
                EvalEnd::TimedOut(evaluated) => (evaluated, exit::TIMED_OUT, None),
                EvalEnd::Stuck(progress) => {
                    let nothing = Evaluated {
                        took_nanos: self.timeout.unwrap_or_default().as_nanos() as u64,
                        output_dropped: 0,
                        thread: None,
                        outcome: Outcome::Finished { value: None },
                    };
                    let stuck = self.target.stuck(progress);
                    (nothing, exit::TIMED_OUT, Some(stuck))
                }
            };
        let timed_out = status == exit::TIMED_OUT;
        let report = EvalReport {
            stuck,
            ..EvalReport::new(pid, output, evaluated, timed_out)
        };
        Ok((report, status))
    }

    fn timed_out(&self, what_became_of_it: &str, stack: String) -> anyhow::Error {
        let seconds = self.timeout.unwrap_or_default().as_secs_f64();
        let message = format!("timed out after {seconds} s: {what_became_of_it}");
        CommandError::new(exit::TIMED_OUT, message)
            .details(stack)
            .hint("allow more time with --timeout SECONDS (0 = no limit)")
            .into()
    }
}

fn show(evaluated: Evaluated) -> anyhow::Result<Status> {
    say_dropped(&evaluated)?;
    let status = status(&evaluated.outcome);
    match evaluated.outcome {
        Outcome::Finished { value } => {
            if let Some(value) = value {
                writeln!(terminal::of_code(Stream::Stdout), "{value}")?;
            }
        }
        Outcome::Raised(Raised { traceback, .. }) => {
            terminal::stderr().write_all(traceback.as_bytes())?;
        }
        Outcome::SyntaxError { text } => terminal::stderr().write_all(text.as_bytes())?,
    }
    Ok(status)
}

/// Says how much output is missing.
fn say_dropped(evaluated: &Evaluated) -> io::Result<()> {
    if evaluated.output_dropped > 0 {
        writeln!(
            terminal::stderr(),
            "\nnote: {} more bytes of output are not shown (see --max-output)",
            evaluated.output_dropped
        )?;
    }
    Ok(())
}

fn status(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Finished { .. } => exit::OK,
        Outcome::Raised(_) => exit::FAILED,
        Outcome::SyntaxError { .. } => exit::SYNTAX_ERROR,
    }
}

/// Shows what is heard of an eval. What cannot be written (a closed pipe) is not worth keeping the target's code waiting
/// for.
pub(super) fn show_news(target: &Target, news: EvalEvent<'_>) {
    match news {
        EvalEvent::Output(stream, text) => write_now(&mut terminal::of_code(stream), text),
        EvalEvent::Waits(thread) => stuck::say_waits(target, thread),
    }
    .ok();
}

fn write_now(stream: &mut impl io::Write, text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes())?;
    stream.flush()
}
