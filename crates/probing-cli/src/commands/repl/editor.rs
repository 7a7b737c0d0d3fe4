//! The line editor for Python: indentation, and the end of the target during input.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use probing_proto::paths::History;
use reedline::{Completer, EditCommand, Reedline, Signal, ValidationResult, Validator};

use crate::commands::line_editor::{self, Language, LinePrompt};
use crate::commands::repl::completion::LiveNames;
use crate::commands::repl::highlight::PythonColours;
use crate::commands::repl::input;

/// How soon a target that has gone is noticed while nobody types.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// What makes a prompt one for Python, or for more than that.
pub(in crate::commands) struct PromptLanguage {
    pub(in crate::commands) completer: Box<dyn Completer + Send>,
    /// Whether Enter ends the input.
    pub(in crate::commands) is_complete: fn(&str) -> bool,
    pub(in crate::commands) history: History,
    /// What stands in front of the cursor.
    pub(in crate::commands) mark: &'static str,
}

impl PromptLanguage {
    pub(super) fn python(names: LiveNames) -> Self {
        Self {
            completer: Box::new(names),
            is_complete: input::is_complete,
            history: History::Python,
            mark: " >>> ",
        }
    }
}

/// What the editor gave.
#[derive(Debug)]
pub(in crate::commands) enum Read {
    Text(String),
    /// Ctrl-D
    Leave,
    /// The target has gone.
    TargetEnded,
    /// Something is to be said. What was typed so far stays.
    News,
}

/// Reads one input after the other from a terminal.
pub(in crate::commands) struct Editor {
    reedline: Reedline,
    mark: &'static str,
    indentation: Arc<Indentation>,
    gone: Arc<ReadInterrupt>,
}

impl Editor {
    pub(in crate::commands) fn new(
        speech: PromptLanguage,
        colours: bool,
        gone: Arc<ReadInterrupt>,
    ) -> Self {
        let indentation = Arc::new(Indentation {
            spaces: AtomicUsize::new(NONE),
            wake: Arc::clone(&gone.wake),
        });
        let language = Language {
            completer: speech.completer,
            validator: Box::new(Completeness {
                is_complete: speech.is_complete,
                indentation: Arc::clone(&indentation),
            }),
            highlighter: Box::new(PythonColours),
            history: speech.history,
            mark: speech.mark,
        };
        let reedline = line_editor::editor(language, colours)
            .with_break_signal(Arc::clone(&gone.wake))
            .with_poll_interval(LOOK_AROUND);
        Self {
            reedline,
            mark: speech.mark,
            indentation,
            gone,
        }
    }

    /// `place` says whose prompt this is, and where code runs.
    pub(in crate::commands) fn read(&mut self, place: String) -> io::Result<Read> {
        let prompt = LinePrompt {
            text: place,
            mark: self.mark,
        };
        loop {
            match self.reedline.read_line(&prompt)? {
                Signal::Success(text) => {
                    // The history survives a prompt that is killed.
                    self.reedline.sync_history().ok();
                    return Ok(Read::Text(text));
                }
                Signal::CtrlD => return Ok(Read::Leave),
                Signal::ExternalBreak(_) if self.gone.is_set() => return Ok(Read::TargetEnded),
                Signal::ExternalBreak(_) if self.gone.take_news() => return Ok(Read::News),
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

/// Set once, when the target has gone: ends the reading. News interrupt it.
#[derive(Debug, Default)]
pub(in crate::commands) struct ReadInterrupt {
    is_set: AtomicBool,
    news: AtomicBool,
    /// The editor takes this back when it has seen it.
    wake: Arc<AtomicBool>,
}

impl ReadInterrupt {
    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.wake.store(true, Ordering::Release);
    }

    /// Something is to be said, whoever types.
    pub(in crate::commands) fn tell(&self) {
        self.news.store(true, Ordering::Release);
        self.wake.store(true, Ordering::Release);
    }

    fn take_news(&self) -> bool {
        self.news.swap(false, Ordering::AcqRel)
    }

    pub(in crate::commands) fn is_set(&self) -> bool {
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
struct Completeness {
    is_complete: fn(&str) -> bool,
    indentation: Arc<Indentation>,
}

impl Validator for Completeness {
    fn validate(&self, line: &str) -> ValidationResult {
        if (self.is_complete)(line) {
            return ValidationResult::Complete;
        }
        let spaces = input::indentation(line);
        if spaces != NONE {
            self.indentation.spaces.store(spaces, Ordering::Release);
            self.indentation.wake.store(true, Ordering::Release);
        }
        ValidationResult::Incomplete
    }
}
