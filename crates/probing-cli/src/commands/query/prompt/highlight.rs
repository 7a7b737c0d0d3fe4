//! Colours for SQL as it is typed.

use nu_ansi_term::{Color, Style};
use reedline::{Highlighter, StyledText};

use crate::commands::query::prompt::words::{self, Kind};

/// Paints keywords, strings, numbers and comments.
#[derive(Debug)]
pub(super) struct SqlColours;

impl Highlighter for SqlColours {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        let mut text = StyledText::new();
        for (kind, part) in words::tokenize(line) {
            text.push((style(kind), part.to_owned()));
        }
        text
    }
}

fn style(kind: Kind) -> Style {
    match kind {
        Kind::Keyword => Color::Blue.bold(),
        Kind::Text => Color::Green.normal(),
        Kind::Number => Color::Cyan.normal(),
        Kind::Comment => Style::new().dimmed(),
        Kind::Name | Kind::Other => Style::new(),
    }
}
