//! `probing collectives`: names late and missing ranks.

mod alignment;
mod runs;
mod text;
mod verdict;

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use probing_client::{
    ClientError, EndedTarget, Entry, FanOutLimits, Group, Member, Members, Ranks, SelectionError,
    Target, fan_out, started_at_nanos,
};
use probing_engine::{Engine, Format, QueryLimits};
use probing_proto::message::recorders::{Tracer, TracerCall};
use serde_json::Value;

use self::verdict::{Process, QueriedProcesses, Recorder, Row};
use crate::arguments::{CollectivesAction, CollectivesArguments};
use crate::commands::TargetArgs;
use crate::commands::fan_out;
use crate::commands::memory::switched;
use crate::commands::query::said_whom_it_lacks;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

/// For a rank to look which operations are done.
const TARGET_TIMEOUT: Duration = Duration::from_secs(5);
/// When a process started is known to a tick of the kernel's clock.
const TICK_NANOS: u64 = 100_000_000;
const TABLE: &str = "python.collectives";
const SQL: &str = "SELECT pid, rank, host, job, group_name, group_rank, group_size, seq, op, shapes, dtype, state, \
     func, file, lineno, CAST(ts AS BIGINT) AS at, duration_ns, CAST(now() AS BIGINT) AS now \
     FROM python.collectives WHERE seq IS NOT NULL ORDER BY ts DESC LIMIT 100000";

/// Switches it.
pub(crate) fn switch(arguments: &CollectivesArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let call = TracerCall {
        tracer: Tracer::Collectives,
        on: Some(arguments.what == CollectivesAction::On),
        borrowed: false,
    };
    fan_out::tell(aim, arguments.json, move |target, entry| {
        let is_on = call.on == Some(true);
        let entry = if is_on { entry } else { &Entry::Forbidden };
        switched(target, entry, &[call])
    })
}

/// Shows what was recorded.
pub(crate) fn run(arguments: &CollectivesArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    // The dead last: who dies meanwhile is among both, not among neither.
    let living = aim.members();
    let mut dead = aim.targets.dead_with(TABLE);
    let mut members = with_nobody(living, &dead)?;
    dead.retain(|ended| !is_among(&members, ended));
    let mut asked = looked(&members);
    for EndedTarget {
        member,
        host,
        started_nanos,
    } in &dead
    {
        let Some(pid) = member.pid else { continue };
        let process = Process::new(host, pid);
        let started = started_nanos.map(|at| (process.clone(), at));
        asked.started.extend(started);
        asked.ended.insert(process);
    }
    let with_dead = !dead.is_empty();
    let dead = dead.into_iter().map(|ended| ended.member);
    members.all.extend(dead);
    let mut rows = rows(&members)?;
    if with_dead {
        let told = runs::select_runs(rows, &asked);
        told.note()
            .map_or(Ok(()), |note| writeln!(terminal::stderr(), "{note}"))?;
        rows = told.rows;
    }
    if rows.is_empty() {
        bail!(why_nothing(&asked));
    }
    let report = verdict::report(&rows, &asked);
    if arguments.json {
        json::print(&report)?;
        return Ok(exit::OK);
    }
    for line in text::lines(&report) {
        writeln!(terminal::stdout(), "{line}")?;
    }
    Ok(exit::OK)
}

/// Those that run. Who asks all asks those that have ended, too: a rank that has died is the one that matters, and there may be
/// no other.
fn with_nobody(living: anyhow::Result<Members>, dead: &[EndedTarget]) -> anyhow::Result<Members> {
    match living {
        Err(error) if !dead.is_empty() && is_nobody(&error) => Ok(Members {
            all: Vec::new(),
            missing: Ranks::default(),
        }),
        members => members,
    }
}

/// Whether one that has ended was found alive a moment before.
fn is_among(members: &Members, ended: &EndedTarget) -> bool {
    let Some(pid) = ended.member.pid else {
        return false;
    };
    let process = Process::new(&ended.host, pid);
    let is_found = members
        .all
        .iter()
        .any(|it| process_of(it).as_ref() == Some(&process));
    // A later process may have its pid.
    let started = started_at_nanos(pid).zip(ended.started_nanos);
    is_found && started.is_none_or(|(found, ended)| found.abs_diff(ended) < TICK_NANOS)
}

fn is_nobody(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<ClientError>();
    matches!(
        error,
        Some(ClientError::Selection(SelectionError::NobodyChosen { .. }))
    )
}

fn why_nothing(asked: &QueriedProcesses) -> String {
    let on: Group = asked.on.iter().collect();
    if on.count() > 0 {
        return format!(
            "no operation is recorded: recording is on in {on}, and none has begun since\n{STACKS}"
        );
    }
    format!(
        "no operation is recorded\n{STACKS}\n\
         hint: `probing -t … collectives on` records operations that begin from then on, PROBING_TORCH=collectives all of them"
    )
}

/// What was not recorded before a hang cannot be recorded in it.
const STACKS: &str =
    "hint: in a job that hangs already, `probing -t … backtrace` shows where each rank is";

/// What one of them is found to be.
enum RecorderStatus {
    Recording(Recorder),
    Ended(Option<Process>),
    Other,
}

/// Has those that live look which operations are done.
fn looked(members: &Members) -> QueriedProcesses {
    let answers = fan_out(
        &members.all,
        FanOutLimits::within(TARGET_TIMEOUT),
        |member| {
            let call = TracerCall {
                tracer: Tracer::Collectives,
                on: None,
                borrowed: false,
            };
            match member.target.connect(&Entry::Forbidden) {
                Ok(mut reached) => {
                    let (pid, rank) = (reached.probe.hello().pid, reached.probe.hello().rank);
                    match reached.probe.tracer(call) {
                        Ok(state) if state.on => RecorderStatus::Recording(Recorder {
                            job: state.job,
                            rank: rank.map(i64::from),
                            pid: u64::from(member.pid.unwrap_or(pid).0),
                        }),
                        Err(error) if error.is_end() => RecorderStatus::Ended(process_of(member)),
                        // One that does not answer is one that hangs: its rows tell.
                        Ok(_) | Err(_) => RecorderStatus::Other,
                    }
                }
                Err(error) if error.is_end() => RecorderStatus::Ended(process_of(member)),
                Err(_) => RecorderStatus::Other,
            }
        },
    );
    let mut asked = QueriedProcesses::default();
    let started = members.all.iter().filter_map(|member| match member.target {
        Target::Local(pid) => Some((process_of(member)?, started_at_nanos(pid)?)),
        _ => None,
    });
    asked.started.extend(started);
    for (seen, member) in answers.into_iter().zip(&members.all) {
        match seen {
            Some(RecorderStatus::Recording(recorder)) => {
                asked.on.push(member.who.clone());
                asked.recording.push(recorder);
            }
            Some(RecorderStatus::Ended(process)) => asked.ended.extend(process),
            Some(RecorderStatus::Other) | None => {}
        }
    }
    asked
}

fn process_of(member: &Member) -> Option<Process> {
    Some(Process::new(&member.target.host()?, member.pid?))
}

fn rows(members: &Members) -> anyhow::Result<Vec<Row>> {
    // It lives as long as its answer is read.
    let engine = Engine::start()?;
    let answer = engine.blocking_ask(SQL, members, &QueryLimits::default())?;
    let mut bytes = Vec::new();
    let written = answer.write(Format::Json, &mut bytes);
    said_whom_it_lacks(written, members)?;
    let rows: Vec<Value> = serde_json::from_slice(&bytes).context("rows that are no JSON")?;
    Ok(rows.iter().filter_map(Row::of).collect())
}
