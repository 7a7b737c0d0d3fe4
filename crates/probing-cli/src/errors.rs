//! Errors as the user sees them, printed here and nowhere else: what failed, then a hint.

use std::fmt;
use std::io::{self, Write as _};

use anstyle::AnsiColor;
use probing_agent::AgentError;
use probing_capture::CaptureError;
use probing_client::ClientError;
use probing_engine::EngineError;

use crate::exit::{self, Status};
use crate::terminal::{self, Style};

/// An error of a command itself, with the exit status that it ends with.
#[derive(Debug)]
pub(crate) struct CommandError {
    message: String,
    /// Lines between the message and the hint.
    details: String,
    hint: Option<String>,
    pub(crate) status: Status,
}

impl CommandError {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            details: String::new(),
            hint: None,
            status,
        }
    }

    pub(crate) fn details(self, details: String) -> Self {
        Self { details, ..self }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CommandError {}

/// Prints the error that ends the command, which exits with this status.
pub(crate) fn end(error: &anyhow::Error) -> Status {
    if terminal::is_reader_gone() {
        return exit::OK;
    }
    // Nobody is left to be told that it cannot be told.
    print(error).ok();
    exit::status_of(error)
}

/// Prints an error after which the command continues.
pub(crate) fn print(error: &anyhow::Error) -> io::Result<()> {
    print_as("error:", AnsiColor::Red, error)
}

/// Prints what is missing in an answer that is there.
pub(crate) fn warn(error: &anyhow::Error) -> io::Result<()> {
    print_as("warning:", AnsiColor::Yellow, error)
}

fn print_as(word: &str, colour: AnsiColor, error: &anyhow::Error) -> io::Result<()> {
    let style = Style::new().bold();
    let (colour, cyan) = (style.coloured(colour), style.coloured(AnsiColor::Cyan));
    let mut out = terminal::stderr();
    let message = continued(&message(error));
    writeln!(out, "{colour}{word}{colour:#} {message}")?;
    if let Some(CommandError { details, .. }) = error.downcast_ref() {
        write!(out, "{details}")?;
    }
    match hint(error) {
        Some(hint) => writeln!(out, "{cyan}hint:{cyan:#} {}", continued(&hint)),
        None => Ok(()),
    }
}

/// What failed, and each cause that is not part of the message already.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

/// An error as a line of a screen.
pub(crate) fn line(message: &str) -> String {
    format!("error: {message}\n")
}

/// What to do about an error.
pub(crate) fn hint(error: &anyhow::Error) -> Option<String> {
    let client_error = error.downcast_ref::<ClientError>();
    let engine_error = error.downcast_ref::<EngineError>();
    client_error
        .and_then(ClientError::hint)
        .or_else(|| engine_error.and_then(EngineError::hint))
        .or_else(|| error.downcast_ref().and_then(AgentError::hint))
        .or_else(|| Some(error.downcast_ref::<CaptureError>()?.hint()?.to_owned()))
        .or_else(|| error.downcast_ref::<CommandError>()?.hint.clone())
}

/// With lines after the first set in: what a target or an agent said must not look like lines of this command.
pub(crate) fn continued(text: &str) -> String {
    let mut lines = text.split('\n');
    let mut continued = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        let indent = if line.starts_with(' ') { "" } else { "  " };
        continued.push_str(&format!("\n{indent}{line}"));
    }
    continued
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        let check = |error: anyhow::Error, printed: &str| assert_eq!(message(&error), printed);
        check(
            anyhow::anyhow!("no such file").context("cannot read a"),
            "cannot read a: no such file",
        );
        check(
            anyhow::anyhow!("no such file").context("cannot read a: no such file"),
            "cannot read a: no such file",
        );
    }
}
