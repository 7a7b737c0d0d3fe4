//! `probing -t PID connect`: serves a program, in lines of JSON on standard input and output.
//!
//! See docs/protocol.md.
//!
//! The main thread hears the program and watches the target; each request has a thread of its own.

mod breakpoints;
mod in_flight;
mod input;

use std::io::{self, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail};
use probing_client::{
    ClientError, Contact, EvalEnd, EvalEvent as EvalNews, Member, Members, Ranks, TargetLabel,
    on_a_kept_thread,
};
use probing_engine::{Engine, EngineError, JsonTable, QueryLimits};
use probing_proto::message::{Eval, Failure, RequestId};
use probing_proto::text::visible::{self, Notation};
use probing_proto::wire::json_lines::{
    BacktraceArgs, EvalArgs, FailureKind, LineCall, LineEvent, LineMessage, LineRequest,
};

use self::in_flight::InFlight;
use self::input::{Input, InputEvent};
use crate::commands::answers::missing_lines;
use crate::commands::{TargetArgs, backtrace, eval};
use crate::errors;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

/// How long requests that were in flight when the target ended have to say so.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// An answer is one line, and the program has to keep it.
const MAX_ROWS: usize = 1_000_000;

pub(crate) fn run(aim: &TargetArgs) -> anyhow::Result<Status> {
    let reached = aim.target().and_then(|target| {
        let contact = Contact::with(&target, aim.entry.clone())?;
        Ok(contact)
    });
    let contact = match reached {
        Ok(contact) => contact,
        Err(error) => {
            say(None, failed(&error))?;
            return Ok(exit::UNREACHABLE);
        }
    };
    say(None, LineEvent::Hello(contact.about().clone()))?;
    serve(&Arc::new(Service {
        contact,
        engine: OnceLock::new(),
        in_flight: InFlight::default(),
    }))
}

fn serve(service: &Arc<Service>) -> anyhow::Result<Status> {
    let mut input = Input::default();
    loop {
        match input.next(&service.contact)? {
            InputEvent::Line(line) => service.take(&line)?,
            InputEvent::TooLong(limit) => {
                let failure = Failure::new(format!("a line is longer than {limit} bytes"));
                let kind = FailureKind::Failed;
                say(None, LineEvent::Failed { kind, failure })?;
                return Ok(exit::FAILED);
            }
            InputEvent::InputEnded => return Ok(exit::OK),
            InputEvent::TargetEnded => {
                service.in_flight.wait_for_none(LAST_WORDS);
                let pid = service.contact.about().pid;
                let reason = ClientError::Ended { pid }.to_string();
                say(None, LineEvent::Gone { reason })?;
                return Ok(exit::UNREACHABLE);
            }
        }
    }
}

struct Service {
    contact: Contact,
    engine: OnceLock<Engine>,
    in_flight: InFlight,
}

impl Service {
    /// Takes one line of the program's. What it asks for is answered from another thread.
    fn take(self: &Arc<Self>, line: &[u8]) -> io::Result<()> {
        let LineRequest { id, call: ask } = match serde_json::from_slice(line) {
            Ok(asked) => asked,
            Err(error) => return say(id_in(line), not_understood(&error)),
        };
        if let LineCall::Cancel { request } = ask {
            let told = self.in_flight.cancel(request);
            return say(
                Some(id),
                told.map_or_else(|error| failed(&error.into()), |()| LineEvent::Done),
            );
        }
        if let Err(failure) = self.in_flight.begin(id) {
            let kind = FailureKind::Failed;
            return say(Some(id), LineEvent::Failed { kind, failure });
        }
        let service = Arc::clone(self);
        let answering = move || {
            let answer = panic::catch_unwind(AssertUnwindSafe(|| service.answer(id, ask)));
            let answer = answer.unwrap_or_else(|_| Err(anyhow::anyhow!("the command panicked")));
            // It ends before it is said, since the program may use the id again as soon as it hears the answer; and nobody
            // says anything between the two, since the last line waits for the end.
            let _alone = terminal::hold_stdout();
            service.in_flight.end(id);
            // A program that does not listen any more has closed our input, too, or soon will.
            say(Some(id), answer.unwrap_or_else(|error| failed(&error))).ok();
        };
        on_a_kept_thread(Box::new(answering)).or_else(|error| {
            self.in_flight.end(id);
            let error = anyhow::Error::new(error).context("cannot start a thread");
            say(Some(id), failed(&error))
        })
    }

    /// Does what is asked; the last word on it.
    fn answer(&self, id: RequestId, ask: LineCall) -> anyhow::Result<LineEvent> {
        match ask {
            LineCall::Eval(asked) => self.eval(id, asked),
            LineCall::Backtrace(asked) => self.backtrace(asked),
            LineCall::Query { sql } => self.query(id, &sql),
            LineCall::Arm(asked) => breakpoints::arm(&self.contact, asked),
            LineCall::Disarm { points } => breakpoints::disarm(&self.contact, points),
            LineCall::Points => breakpoints::points(&self.contact),
            LineCall::Stops => breakpoints::stops(&self.contact),
            LineCall::Release { stops } => breakpoints::release(&self.contact, stops),
            LineCall::Detach => {
                self.contact.detach()?;
                Ok(LineEvent::Done)
            }
            LineCall::Cancel { .. } => Ok(LineEvent::Done),
        }
    }

    fn eval(&self, id: RequestId, asked: EvalArgs) -> anyhow::Result<LineEvent> {
        let timeout = asked.timeout_seconds.map(Duration::try_from_secs_f64);
        let timeout = timeout.transpose().context("timeout_seconds")?;
        let mut probe = self.contact.probe()?;
        let canceller = probe.start_eval(Eval {
            code: asked.code,
            thread: asked.thread.map(String::from),
            frame: asked.frame,
            max_output: asked.max_output,
            stop: None,
            keep: false,
            storage: false,
        })?;
        self.in_flight.runs(id, &canceller)?;
        let end = probe.finish_eval(&canceller, timeout, |news| {
            if let EvalNews::Output(stream, text) = news {
                let text = text.to_owned();
                say(Some(id), LineEvent::Output { stream, text }).ok();
            }
        })?;
        let (evaluated, timed_out) = match end {
            EvalEnd::Evaluated(evaluated) => (evaluated, false),
            EvalEnd::TimedOut(evaluated) => (evaluated, true),
            // What comes later on this connection is nobody's: it goes, and takes the code along.
            EvalEnd::Stuck(progress) => {
                let stuck = self.contact.target()?.stuck(progress);
                return Ok(LineEvent::Stuck {
                    stack: eval::stuck::stack(&stuck),
                    begun: stuck.begun,
                    reason: stuck.reason,
                });
            }
        };
        self.contact.keep(probe);
        Ok(LineEvent::Evaluated {
            timed_out,
            evaluated,
        })
    }

    fn query(&self, id: RequestId, sql: &str) -> anyhow::Result<LineEvent> {
        let about = self.contact.about();
        let member = Member {
            who: TargetLabel::Pid(about.pid),
            target: self.contact.target()?.clone(),
            pid: Some(about.pid),
            rank: about.rank,
        };
        let members = Members {
            all: vec![member],
            missing: Ranks::default(),
        };
        let terms = QueryLimits::default();
        self.in_flight.asks(id, &terms.stopper);
        let answer = self.engine()?.blocking_ask(sql, &members, &terms)?;
        let (JsonTable { columns, rows }, summary) = answer.into_json(MAX_ROWS)?;
        let lacks = missing_lines(&summary.missing, &members);
        Ok(LineEvent::Table {
            columns,
            rows,
            note: (!lacks.is_empty()).then(|| lacks.join("\n")),
        })
    }

    /// Started by the first query.
    fn engine(&self) -> anyhow::Result<&Engine> {
        if self.engine.get().is_none() {
            // Whoever comes second drops its own.
            drop(self.engine.set(Engine::start()?));
        }
        self.engine.get().context("the engine was just started")
    }

    fn backtrace(&self, asked: BacktraceArgs) -> anyhow::Result<LineEvent> {
        if [asked.all, asked.thread.is_some(), asked.tasks]
            .iter()
            .filter(|is_asked| **is_asked)
            .count()
            > 1
        {
            bail!("all threads, one thread and tasks exclude each other");
        }
        let (tasks, target) = (asked.tasks, self.contact.target()?);
        let (mut text, report, notes) = if tasks {
            let report = backtrace::read_tasks(&asked.into(), target)?;
            let text = backtrace::tasks::words(&report, false);
            (text, serde_json::to_value(&report)?, report.notes)
        } else {
            let report = backtrace::read(&asked.into(), target)?;
            let text = backtrace::text::text(&report, false);
            (text, serde_json::to_value(&report)?, report.notes)
        };
        // Not to stderr, which a program need not read.
        text.extend(notes.iter().map(|note| format!("\n{note}\n")));
        let text = visible::lines(&terminal::plain(&text)).into_owned();
        Ok(LineEvent::Backtrace { text, report })
    }
}

/// Says a line whole, whatever other threads say.
fn say(id: Option<RequestId>, tell: LineEvent) -> io::Result<()> {
    let line = json::line(&LineMessage { id, event: tell })?;
    let mut out = terminal::rows(Notation::Json);
    writeln!(out, "{line}")?;
    out.flush()
}

fn failed(error: &anyhow::Error) -> LineEvent {
    let client_error = error.downcast_ref::<ClientError>();
    let engine_error = error.downcast_ref::<EngineError>();
    let is_blind = matches!(engine_error, Some(EngineError::Blind { .. }));
    LineEvent::Failed {
        kind: match client_error {
            None if is_blind => FailureKind::Unreachable,
            Some(ClientError::NotDone(_)) | None => FailureKind::Failed,
            Some(error) if error.is_no_thread() => FailureKind::Failed,
            Some(_) => FailureKind::Unreachable,
        },
        failure: Failure {
            error: errors::message(error),
            hint: errors::hint(error),
        },
    }
}

fn not_understood(error: &serde_json::Error) -> LineEvent {
    LineEvent::Failed {
        kind: FailureKind::Unsupported,
        failure: Failure::new(format!("line not understood: {error}"))
            .with_hint("docs/protocol.md describes the lines"),
    }
}

/// The id in a line that is not understood otherwise.
fn id_in(line: &[u8]) -> Option<RequestId> {
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    value.get("id")?.as_u64().map(RequestId)
}
