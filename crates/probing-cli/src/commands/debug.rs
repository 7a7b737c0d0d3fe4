//! `probing -t PID debug`: a debugger in the terminal, at threads that have stopped.
//!
//! What is typed is understood by `words`, done by a `debugger`, and shown by `show`. Python is run by the session of the
//! prompt (`repl`), on the thread that has stopped. A capture is looked at by `kept`. Without a terminal, the same reads lines from standard input.

mod capture;
mod commands;
mod completion;
mod debugger;
mod script;
mod show;

use std::sync::Arc;

use probing_client::{ClientError, Target};
use probing_proto::paths::History;

use self::commands::Order;
use self::completion::DebuggerNames;
use self::debugger::{Debugger, Next};
use self::script::Script;
use crate::arguments::DebugArguments;
use crate::commands::TargetArgs;
use crate::commands::repl::completion::LiveNames;
use crate::commands::repl::editor::{Editor, PromptLanguage, Read};
use crate::commands::repl::input;
use crate::commands::repl::session::say;
use crate::errors;
use crate::exit::{self, Status};
use crate::terminal;
use crate::terminal::KeysWait;

pub(crate) fn run(arguments: &DebugArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let _keys = KeysWait::begin();
    if let Target::Capture(path) = aim.target()? {
        return capture::run(&path, arguments);
    }
    let mut debugger = Debugger::open(aim)?;
    let outcome = match arguments.request() {
        Some(arm) => debugger.arm(arm),
        None => Ok(()),
    };
    let outcome = outcome.and_then(|()| {
        if terminal::is_interactive() {
            at_terminal(&mut debugger)
        } else {
            from_lines(&mut debugger)
        }
    });
    match outcome {
        Err(error) if matches!(error.downcast_ref(), Some(ClientError::Gone)) => {
            say(&debugger.session.farewell())?;
            Ok(exit::UNREACHABLE)
        }
        outcome => outcome,
    }
}

fn at_terminal(debugger: &mut Debugger<'_>) -> anyhow::Result<Status> {
    let colours = terminal::has_colours();
    let speech = PromptLanguage {
        completer: Box::new(DebuggerNames(LiveNames {
            link: Arc::clone(&debugger.session.link),
        })),
        is_complete,
        history: History::Debugger,
        mark: " > ",
    };
    let mut editor = Editor::new(speech, colours, Arc::clone(&debugger.session.gone));
    loop {
        if debugger.wait(&mut || Ok(false))? == Next::Leave {
            return debugger.leave();
        }
        match editor.read(debugger.prompt())? {
            Read::Text(text) => {
                if done(debugger, &text, true)? == Next::Leave {
                    return debugger.leave();
                }
            }
            Read::News => {
                // Below what was being typed.
                say("")?;
                debugger.tell_news()?;
            }
            Read::Leave => return debugger.leave(),
            Read::TargetEnded => {
                // Below what was being typed.
                say("")?;
                return Err(ClientError::Gone.into());
            }
        }
    }
}

/// Each line as it comes; where one goes on, with those behind it.
fn from_lines(debugger: &mut Debugger<'_>) -> anyhow::Result<Status> {
    let mut script = Script::begin()?;
    // The first stop is shown to who asks nothing, too.
    let mut next = debugger.wait(&mut || Ok(false))?;
    while next == Next::Input {
        let Some(text) = script.next()? else {
            break;
        };
        next = done(debugger, &text, false)?;
        if next == Next::Input {
            next = debugger.wait(&mut || script.is_over())?;
        }
    }
    debugger.leave()
}

fn is_complete(text: &str) -> bool {
    !matches!(Order::of(text), Order::Code(_)) || input::is_complete(text)
}

/// Runs one input. A failure is shown; the debugger stays while there is a target.
fn done(debugger: &mut Debugger<'_>, text: &str, at_terminal: bool) -> anyhow::Result<Next> {
    let done = debugger.take(text, at_terminal);
    match done {
        Err(error) if !matches!(error.downcast_ref(), Some(ClientError::Gone)) => {
            errors::print(&error)?;
            Ok(Next::Input)
        }
        done => done,
    }
}
