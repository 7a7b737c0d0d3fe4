//! `probing -t PID repl`: a prompt in a live process.
//!
//! What is typed (`editor`, with `completion` and `highlight`) is understood (`input`, `magic`, `path`), done by a
//! `session`, and shown (`show`). Without a terminal, the same reads lines from standard input.

pub(super) mod completion;
pub(super) mod editor;
pub(super) mod highlight;
pub(super) mod input;
mod magic;
mod path;
pub(super) mod session;
mod show;
pub(super) mod tokens;

use std::io::{self, BufRead as _};
use std::sync::Arc;

use probing_client::ClientError;

use self::completion::LiveNames;
use self::editor::{Editor, PromptLanguage, Read};
use self::session::{Next, Session, say};
pub(super) use self::show::outcome as show_outcome;
use crate::commands::TargetArgs;
use crate::errors;
use crate::exit::{self, Status};
use crate::terminal;
use crate::terminal::KeysWait;

pub(crate) fn run(aim: &TargetArgs) -> anyhow::Result<Status> {
    let _keys = KeysWait::begin();
    let mut session = Session::open(aim)?;
    if terminal::is_interactive() {
        at_terminal(&mut session)
    } else {
        from_lines(&mut session)
    }
}

/// Runs inputs until the user exits.
pub(super) fn at_terminal(session: &mut Session<'_>) -> anyhow::Result<Status> {
    let names = LiveNames {
        link: Arc::clone(&session.link),
    };
    let colours = terminal::has_colours();
    let speech = PromptLanguage::python(names);
    let mut editor = Editor::new(speech, colours, Arc::clone(&session.gone));
    say(&session.greeting())?;
    loop {
        match editor.read(session.place())? {
            // For the debugger, when this prompt is in one of its frames.
            Read::News => {}
            Read::Text(text) => match go_on(session, &text)? {
                NextStep::On => {}
                NextStep::Away(status) => return Ok(status),
            },
            Read::Leave => return Ok(exit::OK),
            Read::TargetEnded => {
                // Below what was being typed.
                say("")?;
                return said_farewell(session);
            }
        }
    }
}

/// Each input as soon as it is whole.
fn from_lines(session: &mut Session<'_>) -> anyhow::Result<Status> {
    let mut text = String::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        // A block ends where a line is not indented any more, too: files have no empty line there.
        let is_outside = !line.starts_with([' ', '\t', ')', ']', '}']) && !continues_block(&line);
        if !text.is_empty()
            && is_outside
            && input::is_complete(&format!("{text}\n"))
            && let NextStep::Away(status) = go_on(session, &std::mem::take(&mut text))?
        {
            return Ok(status);
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&line);
        if input::is_complete(&text)
            && let NextStep::Away(status) = go_on(session, &std::mem::take(&mut text))?
        {
            return Ok(status);
        }
    }
    match go_on(session, &text)? {
        NextStep::On => Ok(exit::OK),
        NextStep::Away(status) => Ok(status),
    }
}

/// `else:` and its like belong to the block before.
fn continues_block(line: &str) -> bool {
    let word = line.split([' ', ':', '(']).next().unwrap_or("");
    matches!(word, "elif" | "else" | "except" | "finally" | "case")
}

enum NextStep {
    On,
    Away(Status),
}

/// Runs one input. A failure is shown; the prompt stays while there is a target.
fn go_on(session: &mut Session<'_>, text: &str) -> anyhow::Result<NextStep> {
    match session.take(text) {
        Ok(Next::Input) => Ok(NextStep::On),
        Ok(Next::Leave) => Ok(NextStep::Away(exit::OK)),
        Err(error) if matches!(error.downcast_ref(), Some(ClientError::Gone)) => {
            Ok(NextStep::Away(said_farewell(session)?))
        }
        Err(error) => {
            errors::print(&error)?;
            Ok(NextStep::On)
        }
    }
}

fn said_farewell(session: &Session<'_>) -> anyhow::Result<Status> {
    say(&session.farewell())?;
    Ok(exit::UNREACHABLE)
}
