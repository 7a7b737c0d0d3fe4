//! Writers for standard output and standard error, the only ones of the command.
//!
//! Whatever is written here may contain words of a target or of a remote end. A sink shows every character that a
//! terminal would obey (`probing_proto::visible`), on a terminal and in a pipe that may end in one; only this command's
//! own sequences (`own`) pass. `clippy.toml` forbids every other way.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use anyhow::ensure;
use probing_proto::message::Stream;
use probing_proto::text::visible::{Escaper, Notation};

use crate::terminal::own::{Piece, pieces};

/// Text for people: answers.
pub(crate) fn stdout() -> Sink {
    Sink::new(Stream::Stdout, Some(Notation::Text))
}

/// Text for people: what is said about the answers.
pub(crate) fn stderr() -> Sink {
    Sink::new(Stream::Stderr, Some(Notation::Text))
}

/// Rows for programs.
pub(crate) fn rows(notation: Notation) -> Sink {
    Sink::new(Stream::Stdout, Some(notation))
}

/// What evaluated code itself writes, and its value: shown on a terminal, and exactly what it is everywhere else.
pub(crate) fn of_code(stream: Stream) -> Sink {
    let notation = is_terminal(stream).then_some(Notation::Text);
    Sink::new(stream, notation)
}

/// Binary data, which is refused on a terminal.
pub(crate) fn binary() -> anyhow::Result<Sink> {
    ensure!(
        !is_terminal(Stream::Stdout),
        "binary data is not written to a terminal: redirect it, as in `… > rows.arrow`"
    );
    Ok(Sink::new(Stream::Stdout, None))
}

pub(crate) fn is_stdout_terminal() -> bool {
    is_terminal(Stream::Stdout)
}

pub(crate) fn is_stderr_terminal() -> bool {
    is_terminal(Stream::Stderr)
}

/// While it lives, no other thread prints to stdout.
pub(crate) struct StdoutGuard {
    _lock: io::StdoutLock<'static>,
}

#[expect(clippy::disallowed_methods, reason = "nothing is written to it")]
pub(crate) fn hold_stdout() -> StdoutGuard {
    StdoutGuard {
        _lock: io::stdout().lock(),
    }
}

/// Whether a user reads and types.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && is_stdout_terminal()
}

/// Whether what is printed to stdout may have colours.
pub(crate) fn has_colours() -> bool {
    Raw(Stream::Stdout).has_colours()
}

fn is_terminal(stream: Stream) -> bool {
    Raw(stream).is_terminal()
}

/// Whoever read our output has seen enough: `probing list | head -1`. Libraries in between lose what kind of error it was.
static READER_GONE: AtomicBool = AtomicBool::new(false);

/// Whether nobody reads any more what is printed.
pub(crate) fn is_reader_gone() -> bool {
    READER_GONE.load(Ordering::Acquire)
}

fn noted(written: io::Result<()>) -> io::Result<()> {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if written.as_ref().is_err_and(is_gone) {
        READER_GONE.store(true, Ordering::Release);
    }
    written
}

/// A standard stream that nothing but its sink writes to.
#[derive(Debug, Clone, Copy)]
struct Raw(Stream);

#[expect(clippy::disallowed_methods, reason = "this is the one place")]
impl Raw {
    fn is_terminal(self) -> bool {
        match self.0 {
            Stream::Stdout => io::stdout().is_terminal(),
            Stream::Stderr => io::stderr().is_terminal(),
        }
    }

    fn has_colours(self) -> bool {
        let choice = match self.0 {
            Stream::Stdout => AutoStream::choice(&io::stdout()),
            Stream::Stderr => AutoStream::choice(&io::stderr()),
        };
        choice != ColorChoice::Never
    }

    fn write(self, bytes: &[u8]) -> io::Result<()> {
        noted(match self.0 {
            Stream::Stdout => io::stdout().write_all(bytes),
            Stream::Stderr => io::stderr().write_all(bytes),
        })
    }

    fn flush(self) -> io::Result<()> {
        noted(match self.0 {
            Stream::Stdout => io::stdout().flush(),
            Stream::Stderr => io::stderr().flush(),
        })
    }
}

/// Where everything goes that this command prints.
#[derive(Debug)]
pub(crate) struct Sink {
    raw: Raw,
    /// `None`: all bytes pass.
    escaper: Option<Escaper>,
    /// Whether our own sequences pass: styles, and others.
    styles: bool,
    moves: bool,
}

impl Sink {
    fn new(stream: Stream, notation: Option<Notation>) -> Self {
        let raw = Raw(stream);
        Self {
            raw,
            escaper: notation.map(Escaper::new),
            styles: raw.has_colours(),
            moves: raw.is_terminal(),
        }
    }

    fn add(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(escaper) = &mut self.escaper else {
            return out.extend_from_slice(bytes);
        };
        for piece in pieces(bytes) {
            match piece {
                Piece::Text(text) => escaper.feed(text, out),
                Piece::Own(sequence) => {
                    let is_style = sequence.ends_with(b"m");
                    if (is_style && self.styles) || (!is_style && self.moves) {
                        out.push(b'\x1b');
                        out.extend_from_slice(sequence);
                    }
                }
            }
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_idle = |escaper: &Escaper| escaper.is_idle(bytes);
        if self.escaper.as_ref().is_none_or(is_idle) {
            self.raw.write(bytes)?;
            return Ok(bytes.len());
        }
        let mut out = Vec::with_capacity(bytes.len());
        self.add(bytes, &mut out);
        self.raw.write(&out)?;
        Ok(bytes.len())
    }

    /// In one piece: what several threads write is not mixed.
    fn write_fmt(&mut self, arguments: fmt::Arguments<'_>) -> io::Result<()> {
        match arguments.as_str() {
            Some(text) => self.write_all(text.as_bytes()),
            None => self.write_all(arguments.to_string().as_bytes()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        if let Some(escaper) = &mut self.escaper {
            escaper.finish(&mut out);
        }
        if !out.is_empty() {
            self.raw.write(&out)?;
        }
        self.raw.flush()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let mut out = Vec::new();
        if let Some(escaper) = &mut self.escaper {
            escaper.finish(&mut out);
        }
        if !out.is_empty() {
            // Whoever minds has flushed before.
            self.raw.write(&out).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::own::{Style, own};

    fn written(text: &str, styles: bool, moves: bool) -> String {
        let mut sink = Sink {
            raw: Raw(Stream::Stdout),
            escaper: Some(Escaper::new(Notation::Text)),
            styles,
            moves,
        };
        let mut out = Vec::new();
        sink.add(text.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_our_own_sequences_pass() {
        let bold = Style::new().bold();
        let text = format!("{bold}\x1b[1m\u{202e}é{bold:#}{}", own("\x1b[2K"));
        assert_eq!(
            written(&text, true, true),
            "\x1b[1m\\x1b[1m\\u202eé\x1b[0m\x1b[2K"
        );
        assert_eq!(written(&text, false, true), "\\x1b[1m\\u202eé\x1b[2K");
        assert_eq!(written(&text, false, false), "\\x1b[1m\\u202eé");
    }
}
