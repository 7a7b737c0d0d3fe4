//! The commands that need the engine, and where they run.
//!
//! Tens of megabytes that have to be mapped and relocated would slow every command down, so the engine has a program of
//! its own beside `probing`, which becomes it: same arguments, same process. Nothing in `probing` names [`HERE`], so the
//! linker leaves all of the engine out.

use std::env;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};

use anyhow::bail;

use crate::arguments::{
    AgentArguments, CaptureArguments, CollectivesArguments, DebugArguments, ExportArguments,
    QueryArguments, TopArguments, TraceArguments, WatchNanArguments,
};
use crate::commands::{self, TargetArgs};
use crate::exit::Status;

const PROGRAM: &str = "probing-engine";
/// Memory that a query gave back is kept for the next for some seconds (ten times these milliseconds): to get it anew from
/// the kernel takes a quarter of the time of a large join.
const KEEPS: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "500");

/// A command that needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EngineCommand<'a> {
    Query(&'a QueryArguments),
    Export(&'a ExportArguments),
    Capture(&'a CaptureArguments),
    /// Which writes files of traces.
    Trace(&'a TraceArguments),
    Top(&'a TopArguments),
    WatchNan(&'a WatchNanArguments),
    Collectives(&'a CollectivesArguments),
    /// Which is asked to.
    Agent(&'a AgentArguments),
    /// Which may be asked to.
    Connect,
    /// Which may be asked to.
    Repl,
    /// Whose prompt in a frame may be asked to.
    Debug(&'a DebugArguments),
}

/// Where the engine is.
#[derive(Debug)]
pub struct Engines {
    pub(crate) run: fn(EngineCommand<'_>, &TargetArgs) -> anyhow::Result<Status>,
}

/// In this program.
pub const HERE: Engines = Engines { run: here };

/// In the program beside this one.
pub const ELSEWHERE: Engines = Engines { run: elsewhere };

fn here(command: EngineCommand<'_>, aim: &TargetArgs) -> anyhow::Result<Status> {
    match command {
        EngineCommand::Query(arguments) => commands::query::run(arguments, aim),
        EngineCommand::Export(arguments) => commands::export::run(arguments, aim),
        EngineCommand::Capture(arguments) => commands::capture::run(arguments, aim),
        EngineCommand::Trace(arguments) => commands::trace::export::run(arguments, aim),
        EngineCommand::Top(arguments) => commands::top::run(arguments, aim),
        EngineCommand::WatchNan(arguments) => commands::watch_nan::run(arguments, aim),
        EngineCommand::Collectives(arguments) => commands::collectives::run(arguments, aim),
        EngineCommand::Agent(arguments) => commands::agent::run(arguments),
        EngineCommand::Connect => commands::connect::run(aim),
        EngineCommand::Repl => commands::repl::run(aim),
        EngineCommand::Debug(arguments) => commands::debug::run(arguments, aim),
    }
}

/// Comes back only when that cannot be started.
fn elsewhere(_: EngineCommand<'_>, _: &TargetArgs) -> anyhow::Result<Status> {
    let program = beside()?;
    let error = Process::new(&program)
        .args(env::args_os().skip(1))
        .env(KEEPS.0, KEEPS.1)
        .exec();
    if error.kind() == io::ErrorKind::NotFound {
        bail!(
            "probing-engine is missing: {}; install again with `pip install --force-reinstall .` in a checkout of Probing",
            program.display()
        );
    }
    bail!("cannot start {}: {error}", program.display())
}

/// Starts agents again that were killed while programs still want them.
pub(crate) fn revive_agents() {
    for fallen in probing_client::missing_agents() {
        let Ok(program) = beside() else { return };
        // It is nobody's child when this command has ended; what goes wrong with it `probing list` tells.
        let started = Process::new(program)
            .args(["agent", "--wanted", "--listen"])
            .arg(&fallen.listen)
            .envs(fallen.variables)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        drop(started);
    }
}

fn beside() -> io::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name(PROGRAM))
}
