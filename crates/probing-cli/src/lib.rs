//! The command `probing`: arguments in, text out, the outcome in the exit status.
//!
//! Data goes to stdout, words go to stderr. What a command does lies in `commands`, one file each.

mod arguments;
mod commands;
mod engine;
mod errors;
mod exit;
mod first_contact;
mod json;
mod terminal;

use std::io::Write as _;
use std::process::ExitCode;

use probing_proto::env::PROBING_TARGET;
use probing_proto::text::visible;

use crate::arguments::{CollectivesAction, Command};
use crate::commands::TargetArgs;
use crate::engine::EngineCommand;
use crate::exit::Status;

pub use crate::engine::{ELSEWHERE, Engines, HERE};

/// Values, rows and frames are many small pieces: with this they take a fifth less time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The command. `engines` does what needs the engine.
pub fn main(engines: &Engines) -> ExitCode {
    let arguments = arguments::parse().unwrap_or_else(|error| refuse(&error));
    let targets = arguments.targets(PROBING_TARGET.value());
    let aim = TargetArgs {
        targets: targets.unwrap_or_else(|error| refuse(&error)),
        entry: arguments.entry(),
    };
    let keys = arguments.keys().unwrap_or_else(|error| refuse(&error));
    if arguments.command.is_for_targets() {
        engine::revive_agents();
    }
    let result = match arguments.command {
        Command::List(list) => commands::list::run(&list, &aim),
        Command::Agent(agent) => (engines.run)(EngineCommand::Agent(&agent), &aim),
        Command::Eval(eval) => commands::eval::run(&eval, &aim),
        Command::Repl(_) => (engines.run)(EngineCommand::Repl, &aim),
        Command::Backtrace(backtrace) => commands::backtrace::run(&backtrace, &aim),
        Command::Query(query) => (engines.run)(EngineCommand::Query(&query), &aim),
        Command::Capture(capture) => (engines.run)(EngineCommand::Capture(&capture), &aim),
        Command::Export(export) => (engines.run)(EngineCommand::Export(&export), &aim),
        Command::Flamegraph(flamegraph) => commands::flamegraph::run(&flamegraph, &aim),
        Command::Break(arguments) => commands::breakpoints::run_break(&arguments, &aim),
        Command::Watch(arguments) => commands::breakpoints::run_watch(&arguments, &aim),
        Command::Breakpoints(arguments) => commands::breakpoints::run_list(&arguments, &aim),
        Command::Delete(arguments) => commands::breakpoints::run_delete(&arguments, &aim),
        Command::Trace(arguments) if arguments.is_export() => {
            (engines.run)(EngineCommand::Trace(&arguments), &aim)
        }
        Command::Top(arguments) => (engines.run)(EngineCommand::Top(&arguments), &aim),
        Command::Trace(arguments) => commands::trace::run(&arguments, &aim),
        Command::Untrace(arguments) => commands::trace::run_untrace(&arguments, &aim),
        Command::Stops(arguments) => commands::stops::run_list(&arguments, &aim),
        Command::Resume(arguments) => commands::stops::run_resume(&arguments, &aim),
        Command::Debug(arguments) => (engines.run)(EngineCommand::Debug(&arguments), &aim),
        Command::Dap(arguments) => commands::dap::run(&arguments, keys, aim.entry),
        Command::Memory(arguments) => commands::memory::run(&arguments, &aim),
        Command::Collectives(arguments) => match arguments.what {
            CollectivesAction::Show => (engines.run)(EngineCommand::Collectives(&arguments), &aim),
            CollectivesAction::On | CollectivesAction::Off => {
                commands::collectives::switch(&arguments, &aim)
            }
        },
        Command::Leak(arguments) => commands::leak::run(&arguments, &aim),
        Command::Torch(arguments) => commands::torch::run(&arguments, &aim),
        Command::WatchNan(arguments) => (engines.run)(EngineCommand::WatchNan(&arguments), &aim),
        Command::Attach(attach) => commands::attach::run(&attach, &aim),
        Command::Detach(_) => commands::detach::run(&aim),
        Command::Connect(_) => (engines.run)(EngineCommand::Connect, &aim),
        Command::Run(run) => commands::run::run(&run),
        Command::Clean(clean) => commands::clean::run(&clean),
        Command::Completions { shell } => commands::completions::run(shell),
    };
    result.unwrap_or_else(|error| errors::end(&error)).into()
}

/// Says what is wrong with the arguments, or the help that they ask for. In colours, unless there is something in them that
/// a terminal would obey: a script may have taken an argument from anywhere.
fn refuse(error: &clap::Error) -> ! {
    let given = std::env::args_os().chain(PROBING_TARGET.value());
    let is_plain = |text: String| visible::lines(&text) == text;
    if given
        .into_iter()
        .all(|text| is_plain(text.to_string_lossy().into_owned()))
    {
        error.exit();
    }
    // Nobody is left to be told that it cannot be told.
    write!(terminal::stderr(), "{error}").ok();
    exit::now(Status(error.exit_code() as u8))
}
