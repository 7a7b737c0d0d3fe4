//! The line editor as Python needs it: indentation, and the end of the target while somebody types.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use probing_proto::paths::History;
use reedline::{EditCommand, Reedline, Signal, ValidationResult, Validator};

use super::completion::LiveNames;
use super::highlight::PythonColours;
use super::input;
use crate::commands::line_editor::{self, Language, Place};

const MARK: &str = " >>> ";
/// How soon a target that has gone is noticed while nobody types.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// What the editor gave.
#[derive(Debug)]
pub(super) enum Read {
    Text(String),
    /// Ctrl-D
    Leave,
    /// The target has gone.
    Gone,
}

/// Reads one input after the other from a terminal.
pub(super) struct Editor {
    reedline: Reedline,
    indentation: Arc<Indentation>,
    gone: Arc<Gone>,
}

impl Editor {
    pub(super) fn new(names: LiveNames, colours: bool, gone: Arc<Gone>) -> Self {
        let indentation = Arc::new(Indentation {
            spaces: AtomicUsize::new(NONE),
            wake: Arc::clone(&gone.wake),
        });
        let language = Language {
            completer: Box::new(names),
            validator: Box::new(Completeness(Arc::clone(&indentation))),
            highlighter: Box::new(PythonColours),
            history: History::Python,
            mark: MARK,
        };
        let reedline = line_editor::editor(language, colours)
            .with_break_signal(Arc::clone(&gone.wake))
            .with_poll_interval(LOOK_AROUND);
        Self {
            reedline,
            indentation,
            gone,
        }
    }

    /// `place` says whose prompt this is, and where code runs.
    pub(super) fn read(&mut self, place: String) -> io::Result<Read> {
        let prompt = Place {
            text: place,
            mark: MARK,
        };
        loop {
            match self.reedline.read_line(&prompt)? {
                Signal::Success(text) => {
                    // The history survives a prompt that is killed.
                    self.reedline.sync_history().ok();
                    return Ok(Read::Text(text));
                }
                Signal::CtrlD => return Ok(Read::Leave),
                Signal::ExternalBreak(_) if self.gone.is_set() => return Ok(Read::Gone),
                Signal::ExternalBreak(_) => {
                    let spaces = " ".repeat(self.indentation.take());
                    self.reedline
                        .run_edit_commands(&[EditCommand::InsertString(spaces)]);
                }
                _ => {}
            }
        }
    }
}

/// Set once, when the target has gone: ends the reading.
#[derive(Debug, Default)]
pub(super) struct Gone {
    is_set: AtomicBool,
    /// The editor takes this back when it has seen it.
    wake: Arc<AtomicBool>,
}

impl Gone {
    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.wake.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

const NONE: usize = 0;

/// Spaces that the line that was just begun shall have. The editor knows no indentation: it is woken to put them in.
#[derive(Debug)]
struct Indentation {
    spaces: AtomicUsize,
    wake: Arc<AtomicBool>,
}

impl Indentation {
    fn take(&self) -> usize {
        self.spaces.swap(NONE, Ordering::AcqRel)
    }
}

/// Asked when Enter is pressed.
struct Completeness(Arc<Indentation>);

impl Validator for Completeness {
    fn validate(&self, line: &str) -> ValidationResult {
        if input::is_complete(line) {
            return ValidationResult::Complete;
        }
        let spaces = input::indentation(line);
        if spaces != NONE {
            self.0.spaces.store(spaces, Ordering::Release);
            self.0.wake.store(true, Ordering::Release);
        }
        ValidationResult::Incomplete
    }
}
