//! The command `probing`: arguments in, text out, the outcome in the exit status.
//!
//! Data goes to stdout, words go to stderr. What a command does lies in `commands`, one file each.

mod arguments;
mod commands;
mod engine;
mod exit;
mod first_contact;
mod json;
mod terminal;

use std::io;
use std::process::ExitCode;

use anstream::eprintln;
use clap::Parser as _;
use probing_agent::AgentError;
use probing_client::ClientError;
use probing_engine::EngineError;
use probing_proto::env::PROBING_TARGET;

use crate::arguments::{Arguments, Command, What};
use crate::commands::Aim;
use crate::engine::Needy;
use crate::exit::Status;

pub use crate::engine::{ELSEWHERE, Engines, HERE};

/// Values, rows and frames are many small pieces: with this they take a fifth less time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The command. `engines` does what needs the engine.
pub fn main(engines: &Engines) -> ExitCode {
    let arguments = Arguments::parse();
    let targets = arguments.targets(PROBING_TARGET.value());
    let aim = Aim {
        targets: targets.unwrap_or_else(|error| error.exit()),
        entry: arguments.entry(),
    };
    if arguments.command.is_for_targets() {
        engine::revive_agents();
    }
    let result = match arguments.command {
        Command::List(list) => commands::list::run(&list, &aim),
        Command::Agent(agent) => (engines.run)(Needy::Agent(&agent), &aim),
        Command::Eval(eval) => commands::eval::run(&eval, &aim),
        Command::Repl(_) => (engines.run)(Needy::Repl, &aim),
        Command::Backtrace(backtrace) => commands::backtrace::run(&backtrace, &aim),
        Command::Query(query) => (engines.run)(Needy::Query(&query), &aim),
        Command::Capture(capture) => (engines.run)(Needy::Capture(&capture), &aim),
        Command::Export(export) => (engines.run)(Needy::Export(&export), &aim),
        Command::Flamegraph(flamegraph) => commands::flamegraph::run(&flamegraph, &aim),
        Command::Break(arguments) => commands::points::run_break(&arguments, &aim),
        Command::Watch(arguments) => commands::points::run_watch(&arguments, &aim),
        Command::Breakpoints(arguments) => commands::points::run_list(&arguments, &aim),
        Command::Disarm(arguments) => commands::points::run_disarm(&arguments, &aim),
        Command::Trace(arguments) if arguments.is_export() => {
            (engines.run)(Needy::Trace(&arguments), &aim)
        }
        Command::Top(arguments) => (engines.run)(Needy::Top(&arguments), &aim),
        Command::Trace(arguments) => commands::trace::run(&arguments, &aim),
        Command::Untrace(arguments) => commands::trace::run_untrace(&arguments, &aim),
        Command::Stops(arguments) => commands::stops::run_list(&arguments, &aim),
        Command::Release(arguments) => commands::stops::run_release(&arguments, &aim),
        Command::Debug(arguments) => (engines.run)(Needy::Debug(&arguments), &aim),
        Command::Memory(arguments) => commands::memory::run(&arguments, &aim),
        Command::Collectives(arguments) => match arguments.what {
            What::Show => (engines.run)(Needy::Collectives(&arguments), &aim),
            What::On | What::Off => commands::collectives::switch(&arguments, &aim),
        },
        Command::Leak(arguments) => commands::leak::run(&arguments, &aim),
        Command::Torch(arguments) => commands::torch::run(&arguments, &aim),
        Command::WatchNan(arguments) => (engines.run)(Needy::WatchNan(&arguments), &aim),
        Command::Attach(attach) => commands::attach::run(&attach, &aim),
        Command::Detach(_) => commands::detach::run(&aim),
        Command::Connect(_) => (engines.run)(Needy::Connect, &aim),
        Command::Run(run) => commands::run::run(&run),
        Command::Clean(clean) => commands::clean::run(&clean),
        Command::Completions { shell } => commands::completions::run(shell),
    };
    result.unwrap_or_else(|error| show(&error)).into()
}

/// Tells the user what went wrong and what to do about it.
fn show(error: &anyhow::Error) -> Status {
    // Whoever read our output has seen enough (`probing list | head -1`).
    let io_error = match error.downcast_ref() {
        Some(EngineError::NotWritten { source }) => Some(source),
        _ => error.downcast_ref::<io::Error>(),
    };
    if io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return exit::OK;
    }
    let style = |ansi: anstyle::AnsiColor| anstyle::Style::new().bold().fg_color(Some(ansi.into()));
    let (red, cyan) = (
        style(anstyle::AnsiColor::Red),
        style(anstyle::AnsiColor::Cyan),
    );
    eprintln!("{red}error:{red:#} {error:#}");
    let client_error = error.downcast_ref::<ClientError>();
    let engine_error = error.downcast_ref::<EngineError>();
    let hint = client_error
        .and_then(ClientError::hint)
        .or_else(|| engine_error.and_then(EngineError::hint))
        .or_else(|| error.downcast_ref().and_then(AgentError::hint));
    if let Some(hint) = hint {
        eprintln!("{cyan}hint:{cyan:#} {hint}");
    }
    exit::of(error)
}
