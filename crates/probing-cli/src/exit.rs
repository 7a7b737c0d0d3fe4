//! Exit statuses, which scripts rely on.
//!
//! `probing --help` names them.

use std::process::ExitCode;

use probing_capture::CaptureError;
use probing_client::{ClientError, SelectionError};
use probing_engine::EngineError;

use crate::errors::CommandError;

/// An exit status by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u8);

pub(crate) const OK: Status = Status(0);
/// The evaluated code raised; or the command itself failed.
pub(crate) const FAILED: Status = Status(1);
/// The code is not Python.
pub(crate) const SYNTAX_ERROR: Status = Status(2);
/// The arguments make no sense; as everywhere.
pub(crate) const WRONG_ARGUMENTS: Status = Status(2);
/// The target could not be reached.
pub(crate) const UNREACHABLE: Status = Status(3);
/// The deadline passed.
pub(crate) const TIMED_OUT: Status = Status(124);
/// The program to run exists but cannot be started.
pub(crate) const NOT_STARTED: Status = Status(126);
/// The program to run does not exist.
pub(crate) const NOT_FOUND: Status = Status(127);
/// The user pressed Ctrl-C.
pub(crate) const INTERRUPTED: Status = Status(130);

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.0)
    }
}

/// The exit status for what went wrong with one target.
pub(crate) fn status_of(error: &anyhow::Error) -> Status {
    if let Some(error) = error.downcast_ref::<CommandError>() {
        return error.status;
    }
    if let Some(error) = error.downcast_ref() {
        return of_query(error);
    }
    // Whichever way a command came to it.
    match error.downcast_ref() {
        Some(CaptureError::NotWritten { .. }) => return FAILED,
        Some(_) => return UNREACHABLE,
        None => {}
    }
    match error.downcast_ref() {
        Some(ClientError::Selection(
            SelectionError::OnlyOne { .. } | SelectionError::NotExplicit { .. },
        )) => WRONG_ARGUMENTS,
        Some(ClientError::NotDone(_)) | None => FAILED,
        Some(error) if error.is_no_thread() => FAILED,
        Some(_) => UNREACHABLE,
    }
}

/// The exit status for several: what all that failed have in common, or that some failed.
pub(crate) fn of_several(each: impl IntoIterator<Item = Status>) -> Status {
    let mut failed = each.into_iter().filter(|status| *status != OK);
    match failed.next() {
        None => OK,
        Some(first) if failed.all(|status| status == first) => first,
        Some(_) => FAILED,
    }
}

/// The exit status of a query that failed.
fn of_query(error: &EngineError) -> Status {
    match error {
        error if error.is_blind() => UNREACHABLE,
        EngineError::Stopped => INTERRUPTED,
        EngineError::TooLong { .. } => TIMED_OUT,
        error if error.is_syntax() => SYNTAX_ERROR,
        _ => FAILED,
    }
}

/// Ends the command without waiting for anybody.
pub(crate) fn leave() {
    now(INTERRUPTED);
}

/// Ends the command with a status, whatever it is doing.
pub(crate) fn now(status: Status) -> ! {
    #[expect(
        clippy::disallowed_methods,
        clippy::exit,
        reason = "the main thread waits, and may do so for ever; or has not begun"
    )]
    std::process::exit(status.0.into())
}
