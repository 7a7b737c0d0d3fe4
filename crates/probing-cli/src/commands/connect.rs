//! `probing -t PID connect`: serves a program, in lines of JSON on standard input and output. See docs/protocol.md.
//!
//! The main thread hears the program and watches the target; each request has a thread of its own.

mod in_flight;
mod input;
mod points;

use std::io::{self, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail};
use probing_client::{
    ClientError, Contact, EvalEnd, Member, Members, News as EvalNews, Ranks, Who, on_a_kept_thread,
};
use probing_engine::{Engine, EngineError, JsonTable, Terms};
use probing_proto::lines::{Ask, AskLine, AskedEval, AskedStacks, Tell, TellLine, Trouble};
use probing_proto::message::{Eval, Failure, RequestId};
use probing_proto::visible::{self, Notation};

use self::in_flight::InFlight;
use self::input::{Input, News};
use super::answers::missing_lines;
use super::{Aim, backtrace, eval};
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

/// How long requests that were in flight when the target ended have to say so.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// An answer is one line, and the program has to keep it.
const MOST_ROWS: usize = 1_000_000;

pub(crate) fn run(aim: &Aim) -> anyhow::Result<Status> {
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
    say(None, Tell::Hello(contact.about().clone()))?;
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
            News::Line(line) => service.take(&line)?,
            News::TooLong(limit) => {
                let failure = Failure::new(format!("a line is longer than {limit} bytes"));
                let kind = Trouble::Failed;
                say(None, Tell::Failed { kind, failure })?;
                return Ok(exit::FAILED);
            }
            News::InputEnded => return Ok(exit::OK),
            News::TargetEnded => {
                service.in_flight.wait_for_none(LAST_WORDS);
                let pid = service.contact.about().pid;
                let reason = ClientError::Ended { pid }.to_string();
                say(None, Tell::Gone { reason })?;
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
        let AskLine { id, ask } = match serde_json::from_slice(line) {
            Ok(asked) => asked,
            Err(error) => return say(id_in(line), not_understood(&error)),
        };
        if let Ask::Cancel { request } = ask {
            let told = self.in_flight.cancel(request);
            return say(
                Some(id),
                told.map_or_else(|error| failed(&error.into()), |()| Tell::Done),
            );
        }
        if let Err(failure) = self.in_flight.begin(id) {
            let kind = Trouble::Failed;
            return say(Some(id), Tell::Failed { kind, failure });
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
    fn answer(&self, id: RequestId, ask: Ask) -> anyhow::Result<Tell> {
        match ask {
            Ask::Eval(asked) => self.eval(id, asked),
            Ask::Backtrace(asked) => self.backtrace(asked),
            Ask::Query { sql } => self.query(id, &sql),
            Ask::Arm(asked) => points::arm(&self.contact, asked),
            Ask::Disarm { points } => points::disarm(&self.contact, points),
            Ask::Points => points::points(&self.contact),
            Ask::Stops => points::stops(&self.contact),
            Ask::Release { stops } => points::release(&self.contact, stops),
            Ask::Detach => {
                self.contact.detach()?;
                Ok(Tell::Done)
            }
            Ask::Cancel { .. } => Ok(Tell::Done),
        }
    }

    fn eval(&self, id: RequestId, asked: AskedEval) -> anyhow::Result<Tell> {
        let timeout = asked.timeout_seconds.map(Duration::try_from_secs_f64);
        let timeout = timeout.transpose().context("timeout_seconds")?;
        let mut probe = self.contact.probe()?;
        let canceller = probe.start_eval(Eval {
            code: asked.code,
            thread: asked.thread,
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
                say(Some(id), Tell::Output { stream, text }).ok();
            }
        })?;
        let (evaluated, timed_out) = match end {
            EvalEnd::Evaluated(evaluated) => (evaluated, false),
            EvalEnd::TimedOut(evaluated) => (evaluated, true),
            // What comes later on this connection is nobody's: it goes, and takes the code along.
            EvalEnd::Stuck(progress) => {
                let stuck = eval::stuck::report(self.contact.target()?, progress);
                return Ok(Tell::Stuck {
                    stack: eval::stuck::stack(&stuck),
                    begun: stuck.begun,
                    reason: stuck.reason,
                });
            }
        };
        self.contact.keep(probe);
        Ok(Tell::Evaluated {
            timed_out,
            evaluated,
        })
    }

    fn query(&self, id: RequestId, sql: &str) -> anyhow::Result<Tell> {
        let about = self.contact.about();
        let member = Member {
            who: Who::Pid(about.pid),
            target: self.contact.target()?.clone(),
            pid: Some(about.pid),
            rank: about.rank,
        };
        let members = Members {
            all: vec![member],
            missing: Ranks::default(),
        };
        let terms = Terms::default();
        self.in_flight.asks(id, &terms.stopper);
        let answer = self.engine()?.blocking_ask(sql, &members, &terms)?;
        let (JsonTable { columns, rows }, summary) = answer.into_json(MOST_ROWS)?;
        let lacks = missing_lines(&summary.missing, &members);
        Ok(Tell::Table {
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

    fn backtrace(&self, asked: AskedStacks) -> anyhow::Result<Tell> {
        if [asked.all, asked.thread.is_some(), asked.tasks]
            .iter()
            .filter(|is_asked| **is_asked)
            .count()
            > 1
        {
            bail!("all threads, one thread and tasks exclude each other");
        }
        let (tasks, target) = (asked.tasks, self.contact.target()?);
        let (mut text, report, note) = if tasks {
            let (text, report, note) = backtrace::tasks_with_note(&asked.into(), target)?;
            (text, serde_json::to_value(&report)?, note)
        } else {
            let (report, note) = backtrace::read_with_note(&asked.into(), target)?;
            let text = backtrace::text::text(&report, false);
            (text, serde_json::to_value(&report)?, note)
        };
        // Not to stderr, which a program need not read.
        text.extend(note.map(|note| format!("\n{note}\n")));
        let text = visible::lines(&terminal::plain(&text)).into_owned();
        Ok(Tell::Backtrace { text, report })
    }
}

/// Says a line whole, whatever other threads say.
fn say(id: Option<RequestId>, tell: Tell) -> io::Result<()> {
    let line = json::line(&TellLine { id, tell })?;
    let mut out = terminal::rows(Notation::Json);
    writeln!(out, "{line}")?;
    out.flush()
}

fn failed(error: &anyhow::Error) -> Tell {
    let client_error = error.downcast_ref::<ClientError>();
    let engine_error = error.downcast_ref::<EngineError>();
    let is_blind = matches!(engine_error, Some(EngineError::Blind { .. }));
    Tell::Failed {
        kind: match client_error {
            None if is_blind => Trouble::Unreachable,
            Some(ClientError::NotDone(_)) | None => Trouble::Failed,
            Some(_) => Trouble::Unreachable,
        },
        failure: Failure {
            error: format!("{error:#}"),
            hint: client_error
                .and_then(ClientError::hint)
                .or_else(|| engine_error.and_then(EngineError::hint)),
        },
    }
}

fn not_understood(error: &serde_json::Error) -> Tell {
    Tell::Failed {
        kind: Trouble::Unsupported,
        failure: Failure::new(format!("line not understood: {error}"))
            .with_hint("docs/protocol.md shows what can be said"),
    }
}

/// The id in a line that is not understood otherwise.
fn id_in(line: &[u8]) -> Option<RequestId> {
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    value.get("id")?.as_u64().map(RequestId)
}
