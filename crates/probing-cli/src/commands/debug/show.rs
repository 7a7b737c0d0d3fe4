//! What a debugger shows: where a thread is, the source around it, its stack.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use probing_proto::message::breakpoints::{Source, SourceLocation, Stop, StopReason};

use crate::commands::breakpoints::text;
use crate::commands::repl::highlight;
use crate::commands::repl::tokens;
use crate::terminal;
use crate::terminal::Style;
use probing_proto::text::visible;

const HERE: Style = Style::new().bold().coloured(AnsiColor::Yellow);
const HEAD: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// `> step (/home/ann/train.py:120)  breakpoint 1  [MainThread, resumes in 10m]`
pub(super) fn head(stop: &Stop, frame: usize) -> String {
    let place = stop
        .frames
        .get(frame)
        .map_or_else(|| "no Python code".to_owned(), text::spot);
    let mut line = format!("{HERE}>{HERE:#} {HEAD}{place}{HEAD:#}");
    // Who steps knows why.
    if !matches!(stop.why, StopReason::Step) {
        let (why, name, ends) = (
            &stop.why,
            visible::line(&stop.thread_name),
            text::duration(stop.ends_in_millis),
        );
        // Writing to a String does not fail.
        write!(line, "  {why}  {FAINT}[{name}, resumes in {ends}]{FAINT:#}").ok();
    }
    line
}

/// Numbered lines, the current one marked.
pub(super) fn source(source: &Source, current: u32) -> String {
    let last = source.first + source.lines.len() as u32;
    let width = last.to_string().len().max(4);
    let mut text = String::new();
    for (number, line) in (source.first..).zip(&source.lines) {
        let code = painted(&visible::lines(line.trim_end()));
        let line = if number == current {
            format!("{HERE}{number:>width$} ->{HERE:#} {code}")
        } else {
            format!("{FAINT}{number:>width$}{FAINT:#}    {code}")
        };
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Python in colours.
fn painted(code: &str) -> String {
    tokens::tokenize(code)
        .map(|(kind, part)| {
            let style = highlight::style(kind);
            let [begin, end] = [style.prefix().to_string(), style.suffix().to_string()];
            format!("{}{part}{}", terminal::own(&begin), terminal::own(&end))
        })
        .collect()
}

/// The stack as `w` shows it: the innermost frame last, as in a traceback.
pub(super) fn stack(frames: &[SourceLocation], chosen: usize) -> String {
    let mut text = String::new();
    for (depth, frame) in frames.iter().enumerate().rev() {
        let mark = if depth == chosen {
            format!("{HERE}>{HERE:#}")
        } else {
            " ".to_owned()
        };
        // Writing to a String does not fail.
        writeln!(text, "{mark} {depth:>3}  {}", text::spot(frame)).ok();
    }
    text
}

/// The file's name, for the prompt.
pub(super) fn short(spot: &SourceLocation) -> String {
    let name = spot.file.rsplit('/').next().unwrap_or(&spot.file);
    format!("{}:{}", visible::line(name), spot.lineno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        terminal::plain(text)
    }

    #[test]
    fn the_current_line_is_marked() {
        let lines = ["def f(x):", "    return x", ""]
            .map(str::to_owned)
            .to_vec();
        let shown = source(
            &Source {
                first: 9,
                lines,
                of: 12,
            },
            10,
        );
        assert_eq!(
            plain(&shown),
            "   9    def f(x):\n  10 ->     return x\n  11\n"
        );
    }

    #[test]
    fn a_stack_ends_with_its_innermost_frame() {
        let spot = |func: &str, lineno| SourceLocation {
            func: func.into(),
            file: "/w/a.py".into(),
            lineno,
        };
        let shown = stack(&[spot("inner", 3), spot("outer", 9)], 1);
        assert_eq!(
            plain(&shown),
            ">   1  outer (/w/a.py:9)\n    0  inner (/w/a.py:3)\n"
        );
        assert_eq!(short(&spot("inner", 3)), "a.py:3");
    }
}
