//! Colours for Python as it is typed.

use nu_ansi_term::{Color, Style};
use reedline::{Highlighter, StyledText};

use crate::commands::repl::tokens::{self, Kind};

/// Paints keywords, strings, numbers and comments.
#[derive(Debug)]
pub(super) struct PythonColours;

impl Highlighter for PythonColours {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        let mut text = StyledText::new();
        for (kind, part) in tokens::tokenize(line) {
            text.push((style(kind), part.to_owned()));
        }
        text
    }
}

pub(in crate::commands) fn style(kind: Kind) -> Style {
    match kind {
        Kind::Keyword => Color::Blue.bold(),
        Kind::Text(_) => Color::Green.normal(),
        Kind::Number => Color::Cyan.normal(),
        Kind::Comment => Style::new().dimmed(),
        Kind::Name | Kind::Open | Kind::Close | Kind::NewLine | Kind::Other => Style::new(),
    }
}
