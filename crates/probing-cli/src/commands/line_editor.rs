//! The line editor that every prompt has: keys, the menu of completions, a history that lasts.

mod menu;

use std::borrow::Cow;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use probing_proto::env::{HOME, XDG_STATE_HOME};
use probing_proto::paths::{self, History};
use probing_proto::text::visible;
use reedline::{
    ColumnarMenu, Completer, EditCommand, Emacs, FileBackedHistory, Highlighter, KeyCode,
    KeyModifiers, MenuBuilder as _, Prompt, PromptEditMode, PromptHistorySearch, Reedline,
    ReedlineEvent, ReedlineMenu, Suggestion, Validator, default_emacs_keybindings,
};

use self::menu::CompletionMenu;

const HISTORY_LENGTH: usize = 10_000;
const MENU: &str = "completion_menu";

/// What makes a prompt one for its language.
pub(crate) struct Language {
    pub(crate) completer: Box<dyn Completer + Send>,
    pub(crate) validator: Box<dyn Validator>,
    pub(crate) highlighter: Box<dyn Highlighter>,
    pub(crate) history: History,
    /// What stands in front of the cursor.
    pub(crate) mark: &'static str,
}

/// An editor for a terminal, with or without colours.
pub(crate) fn editor(language: Language, colours: bool) -> Reedline {
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
    let menu = ColumnarMenu::default()
        .with_name(MENU)
        .with_marker(language.mark);
    let mut reedline = Reedline::create()
        .with_completer(Box::new(Visible(language.completer)))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(CompletionMenu(
            menu,
        ))))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_validator(language.validator)
        .with_ansi_colors(colours)
        .use_bracketed_paste(true);
    if colours {
        reedline = reedline.with_highlighter(language.highlighter);
    }
    // Without a place to keep it, it lasts as long as the prompt.
    let file = history_file(language.history).ok().flatten();
    if let Some(history) =
        file.and_then(|file| FileBackedHistory::with_file(HISTORY_LENGTH, file).ok())
    {
        reedline = reedline.with_history(Box::new(history));
    }
    reedline
}

/// What a target offers, with nothing in it that a terminal obeys: the editor draws it without our help.
struct Visible(Box<dyn Completer + Send>);

impl Completer for Visible {
    fn complete(&mut self, line: &str, pos: usize) -> Vec<Suggestion> {
        let shown = |text: String| visible::line(&text).into_owned();
        let suggestions = self.0.complete(line, pos).into_iter();
        suggestions
            .map(|suggestion| Suggestion {
                value: shown(suggestion.value),
                display_override: suggestion.display_override.map(shown),
                description: suggestion.description.map(shown),
                extra: suggestion
                    .extra
                    .map(|extra| extra.into_iter().map(shown).collect()),
                ..suggestion
            })
            .collect()
    }
}

/// What stands in front of the cursor: whose prompt this is, and its mark.
#[derive(Debug, Clone)]
pub(crate) struct LinePrompt {
    pub(crate) text: String,
    pub(crate) mark: &'static str,
}

impl Prompt for LinePrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        visible::line(&self.text)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed(self.mark)
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("... ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!(" search: {} ", search.term))
    }
}

/// The user's own file, made if it is not there. None without a home.
fn history_file(history: History) -> io::Result<Option<PathBuf>> {
    let state = XDG_STATE_HOME.value();
    let Some(file) = paths::history_file(history, state, HOME.value()) else {
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
