//! Lines that fit the terminal.

use std::io;

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
