//! The terminal: output (`sink`), its width, and keys that are typed ahead.

mod own;
mod sink;

use std::io::{self, IsTerminal as _, Write as _};

use probing_proto::text::visible;

use rustix::termios::{
    InputModes, LocalModes, OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr,
};

pub(crate) use self::own::{Style, own, plain};
pub(crate) use self::sink::{
    Sink, binary, has_colours, hold_stdout, is_interactive, is_reader_gone, is_stderr_terminal,
    is_stdout_terminal, of_code, rows, stderr, stdout,
};

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
    let columns = size().map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { usize::MAX } else { columns }
}

/// Of the terminal that stdout is.
pub(crate) fn size() -> Option<Winsize> {
    tcgetwinsize(rustix::stdio::stdout()).ok()
}

/// Cut to `width`, and without line breaks that a program's own words may contain.
pub(crate) fn on_one_line(text: &str, width: usize) -> String {
    let text = visible::line(text);
    let mut line: String = text.chars().take(width).collect();
    if text.chars().count() > width {
        line.pop();
        line.push('…');
    }
    line
}

/// Ends the line that begins at `start` of a text, as [`on_one_line`] wants it.
pub(crate) fn end_line(text: &mut String, start: usize, width: usize) {
    let line = &text[start..];
    if line.len() > width || !line.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        let line = on_one_line(line, width);
        text.truncate(start);
        text.push_str(&line);
    }
    text.push('\n');
}

/// Prints a long text. Colours and the like in it go to terminals only.
pub(crate) fn print(text: &str) -> io::Result<()> {
    stdout().write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line_and_fits_the_terminal() {
        assert_eq!(
            on_one_line("python -c a\nb", usize::MAX),
            r"python -c a\x0ab"
        );
        assert_eq!(on_one_line("python", 6), "python");
        assert_eq!(on_one_line("python train.py", 9), "python t…");
        let ended = |line: &str, width| {
            let mut text = format!("before\n{line}");
            end_line(&mut text, 7, width);
            text
        };
        assert_eq!(ended("x = 1", 5), "before\nx = 1\n");
        assert_eq!(ended("x = 'a\tb'", 80), "before\nx = 'a\\x09b'\n");
        assert_eq!(ended("x = 'Ünï'", 9), "before\nx = 'Ünï'\n");
        assert_eq!(ended("x = 1000", 5), "before\nx = …\n");
    }
}
