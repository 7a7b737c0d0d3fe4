//! Text that is updated in place on the terminal's alternate screen.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use probing_client::Pace;
use probing_proto::text::visible;

use crate::terminal::{self, own};

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
/// The next line comes by its own sequence: a line feed would have to be one of ours, too.
const END_OF_LINE: &str = "\x1b[K\x1b[E";
const REST_OF_SCREEN: &str = "\x1b[J";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[m";
/// How soon a new size of the window is noticed.
const SIZE_SEEN_AFTER: Duration = Duration::from_millis(100);

/// Whether the second screen is shown. A process has one terminal.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Which lines of too many are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VisiblePart {
    First,
    Last,
}

impl VisiblePart {
    /// Of one stack, where its thread is; of several, those that come first.
    pub(crate) fn of(all: bool, reverse: bool) -> Self {
        if all || reverse {
            Self::First
        } else {
            Self::Last
        }
    }
}

/// Columns and lines.
type Size = (usize, usize);

pub(crate) struct Screen {
    kept: VisiblePart,
    title: String,
    text: String,
    /// Lines that are new stand out; nothing is new at first.
    before: Option<HashSet<String>>,
    /// Of the last drawing; `None`: not entered yet.
    size: Option<Size>,
}

impl Screen {
    pub(crate) fn new(kept: VisiblePart) -> Self {
        Self {
            kept,
            title: String::new(),
            text: String::new(),
            before: None,
            size: None,
        }
    }

    pub(crate) fn set_title(&mut self, title: String) {
        self.title = title;
    }

    /// Waits for the next beat; draws again when the window has another size meanwhile.
    pub(crate) fn wait(&mut self, pace: &mut Pace) -> io::Result<Option<Duration>> {
        loop {
            if let Some(beat) = pace.wait_for(SIZE_SEEN_AFTER) {
                return Ok(beat);
            }
            if self.size.is_some_and(|drawn| drawn != size()) {
                self.show()?;
            }
        }
    }

    pub(crate) fn draw(&mut self, text: &str) -> io::Result<()> {
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        self.before = (!self.text.is_empty()).then(|| lines(&self.text));
        text.clone_into(&mut self.text);
        self.show()
    }

    fn show(&mut self) -> io::Result<()> {
        let mut out = terminal::stdout();
        let size = size();
        if self.size.is_none() {
            ENTERED.store(true, Ordering::Release);
            out.write_all(own(ENTER).as_bytes())?;
        }
        self.size = Some(size);
        let drawn = drawn(&self.title, &self.text, size, self.kept, |line| {
            let before = self.before.as_ref();
            before.is_some_and(|before| !before.contains(line))
        });
        out.write_all(drawn.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Shows the first screen again, unless it is shown; also for a command that ends without ending its parts.
pub(crate) fn leave() {
    if ENTERED.swap(false, Ordering::AcqRel) {
        // A terminal that is gone needs nothing.
        let mut out = terminal::stdout();
        out.write_all(own(LEAVE).as_bytes())
            .and_then(|()| out.flush())
            .ok();
    }
}

fn size() -> Size {
    terminal::size()
        .filter(|size| size.ws_col > 0 && size.ws_row > 0)
        .map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
}

/// All that makes the screen show the text, cut to its size.
fn drawn(
    title: &str,
    text: &str,
    (columns, rows): Size,
    kept: VisiblePart,
    is_new: impl Fn(&str) -> bool,
) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // The title, an empty line, and the last one, where the cursor is.
    let room = rows.saturating_sub(3);
    let hidden = lines.len().saturating_sub(room);
    // The line that tells so takes the room of one more.
    let hidden = if hidden > 0 { hidden + 1 } else { 0 };
    let hidden = hidden.min(lines.len());
    let more = (hidden > 0).then(|| format!("… {hidden} lines more"));
    let shown = match kept {
        VisiblePart::First => &lines[..lines.len() - hidden],
        VisiblePart::Last => &lines[hidden..],
    };
    let end_of_line = own(END_OF_LINE);
    let line = |line: &&str| {
        let cut = cut(line, columns);
        if is_new(line) {
            format!("{}{cut}{}{end_of_line}", own(BOLD), own(PLAIN))
        } else {
            format!("{cut}{end_of_line}")
        }
    };
    let mut body: Vec<String> = shown.iter().map(line).collect();
    if let Some(more) = more {
        let at = if kept == VisiblePart::First {
            body.len()
        } else {
            0
        };
        body.insert(at, format!("{}{end_of_line}", cut(&more, columns)));
    }
    format!(
        "{}{}{end_of_line}{end_of_line}{}{}",
        own(HOME),
        cut(title, columns),
        body.concat(),
        own(REST_OF_SCREEN)
    )
}

/// What fits, without characters that would move the cursor: names and sources may contain any.
fn cut(line: &str, columns: usize) -> String {
    visible::line(line).chars().take(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, size: Size, kept: VisiblePart, expected: &[&str]) {
        let drawn = drawn("title", text, size, kept, |line| line == "new");
        let shown = drawn
            .strip_prefix(&own(HOME))
            .and_then(|rest| rest.strip_suffix(&own(REST_OF_SCREEN)));
        let lines: Vec<&str> = shown.unwrap().split_terminator(&own(END_OF_LINE)).collect();
        assert_eq!(lines[2..], *expected);
        assert!(lines.len() < size.1.max(4), "the screen must not scroll");
    }

    #[test]
    fn a_text_is_cut_to_the_window() {
        check("a\nb", (80, 24), VisiblePart::Last, &["a", "b"]);
        check("one long line", (7, 24), VisiblePart::Last, &["one lon"]);
        check(
            "1\n2\n3\n4",
            (80, 7),
            VisiblePart::Last,
            &["1", "2", "3", "4"],
        );
        check(
            "1\n2\n3\n4",
            (80, 6),
            VisiblePart::Last,
            &["… 2 lines more", "3", "4"],
        );
        check(
            "1\n2\n3\n4",
            (80, 6),
            VisiblePart::First,
            &["1", "2", "… 2 lines more"],
        );
        check("1\n2", (80, 1), VisiblePart::First, &["… 2 lines more"]);
    }

    #[test]
    fn what_is_new_stands_out_and_nothing_moves_the_cursor() {
        check(
            "old\nnew",
            (80, 24),
            VisiblePart::First,
            &["old", &own("\x1b[1mnew\x1b[m")],
        );
        check("a\x1b[Hb", (80, 24), VisiblePart::First, &[r"a\x1b[Hb"]);
    }
}
