//! The terminal: lines that fit it, and keys that come before somebody reads them.

use std::io::{self, IsTerminal as _};

use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// While it lives, keys wait as they were pressed until a line editor reads them: those pressed while code runs belong
/// to the next line, and are not echoed into what the code prints. Ctrl-C still interrupts.
#[derive(Debug)]
pub(crate) struct KeysWait {
    before: Option<Termios>,
}

impl KeysWait {
    pub(crate) fn begin() -> Self {
        let before = io::stdin()
            .is_terminal()
            .then(|| tcgetattr(io::stdin()).ok())
            .flatten();
        if let Some(before) = &before {
            let mut modes = before.clone();
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // An editor that finds a line feed does not take it for the end of a line.
            modes.input_modes -= InputModes::ICRNL;
            // A terminal that is gone needs nothing, here and below.
            tcsetattr(io::stdin(), OptionalActions::Now, &modes).ok();
        }
        Self { before }
    }
}

impl Drop for KeysWait {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            tcsetattr(io::stdin(), OptionalActions::Now, before).ok();
        }
    }
}

/// Columns of the terminal; as many as it takes when the output goes elsewhere.
pub(crate) fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { usize::MAX } else { columns }
}

/// Cut to `width`, and without line breaks that a program's own words may contain.
pub(crate) fn on_one_line(text: &str, width: usize) -> String {
    let mut line: String = text
        .chars()
        .take(width)
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect();
    if text.chars().count() > width {
        line.pop();
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line_and_fits_the_terminal() {
        assert_eq!(on_one_line("python -c a\nb", usize::MAX), "python -c a b");
        assert_eq!(on_one_line("python", 6), "python");
        assert_eq!(on_one_line("python train.py", 9), "python t…");
    }
}
