//! The line editor: prompt, history, keys, indentation.

use std::borrow::Cow;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use probing_proto::env::{HOME, XDG_STATE_HOME};
use probing_proto::paths;
use reedline::{
    ColumnarMenu, EditCommand, Emacs, FileBackedHistory, KeyCode, KeyModifiers, MenuBuilder as _,
    Prompt, PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu, Signal,
    ValidationResult, Validator, default_emacs_keybindings,
};

use super::completion::LiveNames;
use super::highlight::PythonColours;
use super::input;

const HISTORY_LENGTH: usize = 10_000;
const MENU: &str = "completion_menu";
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
        let mut keys = default_emacs_keybindings();
        let complete = vec![
            ReedlineEvent::Menu(MENU.to_owned()),
            ReedlineEvent::MenuNext,
        ];
        keys.add_binding(
            KeyModifiers::NONE,
            KeyCode::Tab,
            ReedlineEvent::UntilFound(complete),
        );
        // Not the editor's own way, which ends the reading and loses keys that were typed right behind it.
        let drop_text = vec![
            ReedlineEvent::Esc,
            ReedlineEvent::Edit(vec![EditCommand::Clear]),
        ];
        keys.add_binding(
            KeyModifiers::CONTROL,
            KeyCode::Char('c'),
            ReedlineEvent::Multiple(drop_text),
        );
        let new_line = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, new_line);
        let mut reedline = Reedline::create()
            .with_completer(Box::new(names))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(
                ColumnarMenu::default().with_name(MENU).with_marker(MARK),
            )))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_validator(Box::new(Completeness(Arc::clone(&indentation))))
            .with_ansi_colors(colours)
            .with_break_signal(Arc::clone(&gone.wake))
            .with_poll_interval(LOOK_AROUND)
            .use_bracketed_paste(true);
        if colours {
            reedline = reedline.with_highlighter(Box::new(PythonColours));
        }
        // Without a place to keep it, it lasts as long as the prompt.
        if let Some(history) = history_file()
            .ok()
            .flatten()
            .and_then(|file| FileBackedHistory::with_file(HISTORY_LENGTH, file).ok())
        {
            reedline = reedline.with_history(Box::new(history));
        }
        Self {
            reedline,
            indentation,
            gone,
        }
    }

    pub(super) fn read(&mut self, prompt: &Place) -> io::Result<Read> {
        loop {
            match self.reedline.read_line(prompt)? {
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

/// What stands in front of the cursor: whose prompt this is, and where code runs.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) text: String,
}

impl Prompt for Place {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.text)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed(MARK)
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("... ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!(" search: {} ", search.term))
    }
}

/// The user's own file, made if it is not there. None without a home.
fn history_file() -> io::Result<Option<PathBuf>> {
    let state = XDG_STATE_HOME.value();
    let Some(file) = paths::history_file(state, HOME.value()) else {
        return Ok(None);
    };
    if let Some(folder) = file.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    // What was typed may hold secrets.
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&file)?;
    Ok(Some(file))
}
