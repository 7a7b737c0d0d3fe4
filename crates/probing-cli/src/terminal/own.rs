//! Control sequences of this command's own: colours, and moves of the cursor.
//!
//! They travel within text as `ESC SECRET [1m`, where the secret is new in each process and never leaves it. The sink
//! takes it out again, and lets no other escape sequence pass: no name of a target can imitate a style.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::OnceLock;

/// A style whose sequences pass the sink. `{style}` begins it, `{style:#}` ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style(anstyle::Style);

impl Style {
    pub(crate) const fn new() -> Self {
        Self(anstyle::Style::new())
    }

    pub(crate) const fn bold(self) -> Self {
        Self(self.0.bold())
    }

    pub(crate) const fn dimmed(self) -> Self {
        Self(self.0.dimmed())
    }

    pub(crate) const fn coloured(self, colour: anstyle::AnsiColor) -> Self {
        Self(self.0.fg_color(Some(anstyle::Color::Ansi(colour))))
    }
}

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sequences = if f.alternate() {
            format!("{:#}", self.0)
        } else {
            self.0.to_string()
        };
        f.write_str(&own(&sequences))
    }
}

/// Marks control sequences (`ESC [ … letter`) as this command's own. Never to be given anything that a target said.
pub(crate) fn own(sequences: &str) -> String {
    sequences.replace('\x1b', lead())
}

/// Without styles and the like.
pub(crate) fn plain(text: &str) -> String {
    let words = pieces(text.as_bytes()).filter_map(|piece| match piece {
        Piece::Text(text) => Some(String::from_utf8_lossy(text)),
        Piece::Own(_) => None,
    });
    words.collect()
}

/// `ESC` and the secret.
fn lead() -> &'static str {
    static LEAD: OnceLock<String> = OnceLock::new();
    // The standard library seeds each state with random bytes of the kernel.
    LEAD.get_or_init(|| format!("\x1b{:016x}", RandomState::new().build_hasher().finish()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(&'a [u8]),
    /// What follows `ESC` in a sequence of our own: `[1m`
    Own(&'a [u8]),
}

/// What `bytes` are made of, in order.
pub(super) fn pieces(bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let lead = lead().as_bytes();
        if let Some(own) = rest.strip_prefix(lead) {
            let is_last = |byte: &u8| matches!(byte, b'@'..=b'Z' | b'a'..=b'~');
            let length = own.iter().position(is_last).map_or(own.len(), |at| at + 1);
            let (own, after) = own.split_at(length);
            rest = after;
            return Some(Piece::Own(own));
        }
        let mut from = 0;
        let end = loop {
            let escape = rest[from..].iter().position(|byte| *byte == b'\x1b');
            match escape.map(|at| from + at) {
                None => break rest.len(),
                Some(at) if rest[at..].starts_with(lead) => break at,
                Some(at) => from = at + 1,
            }
        };
        let (text, after) = rest.split_at(end);
        rest = after;
        Some(Piece::Text(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_sequences_are_told_from_text() {
        let bold = Style::new().bold();
        let text = format!("a{bold}\x1b[1mb{bold:#}c\x1b");
        let pieces: Vec<Piece<'_>> = pieces(text.as_bytes()).collect();
        assert_eq!(
            pieces,
            [
                Piece::Text(b"a"),
                Piece::Own(b"[1m"),
                Piece::Text(b"\x1b[1mb"),
                Piece::Own(b"[0m"),
                Piece::Text(b"c\x1b"),
            ]
        );
        assert_eq!(plain(&text), "a\x1b[1mbc\x1b");
    }
}
