//! The selected frame: source, values, arguments and displayed expressions.

use std::io::Write as _;

use anyhow::bail;
use probing_client::ClientError;
use probing_proto::message::Outcome;
use probing_proto::message::breakpoints::SourceLocation;
use probing_proto::message::completion::Scope;
use probing_proto::text::function_lines;

use crate::commands::debug::commands::Lines;
use crate::commands::debug::debugger::Debugger;
use crate::commands::debug::show;
use crate::commands::repl;
use crate::commands::repl::session::say;
use crate::terminal;

/// Lines around the current one that `l` shows.
const SOME: u32 = 5;

impl Debugger<'_> {
    /// Lines around the current one of the chosen frame.
    pub(super) fn show_source(&mut self, around: u32) -> anyhow::Result<()> {
        let Some(spot) = self.spot() else {
            return Ok(());
        };
        let first = spot.lineno.saturating_sub(around).max(1);
        let count = around * 2 + 1;
        self.show_lines(first, count)
    }

    /// All of the function that is looked at; of a body of a module, the file.
    pub(super) fn show_function(&mut self) -> anyhow::Result<()> {
        let Some(SourceLocation { file, lineno, .. }) = self.spot().cloned() else {
            bail!("no frame is selected: the program runs");
        };
        let source = self.session.link.probe().source(&file, 1, u32::MAX);
        let (first, last) = match source {
            Ok(source) => function_lines::around(&source.lines, lineno),
            // Said below, in the same words as for any other lines.
            Err(ClientError::NotDone(_)) => (1, 1),
            Err(error) => return Err(error.into()),
        };
        self.show_lines(first, last.saturating_sub(first).saturating_add(1))
    }

    pub(super) fn show_lines(&mut self, first: u32, count: u32) -> anyhow::Result<()> {
        let Some(SourceLocation { file, lineno, .. }) = self.spot().cloned() else {
            bail!("no frame is selected: the program runs");
        };
        let source = self.session.link.probe().source(&file, first, count);
        match source {
            Ok(source) if source.lines.is_empty() => {
                say(&format!("no line {first}: {file} has {}", source.of))?;
            }
            Ok(source) => {
                write!(terminal::stdout(), "{}", show::source(&source, lineno))?;
                self.listed = Some(source.first + source.lines.len() as u32);
            }
            Err(ClientError::NotDone(failure)) => say(&format!("no source: {}", failure.error))?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(super) fn climb(&mut self, count: usize, outwards: bool) -> anyhow::Result<()> {
        let depth = self.looked_at()?.frames.len();
        let (end, frame) = if outwards {
            (depth.saturating_sub(1), self.frame.saturating_add(count))
        } else {
            (0, self.frame.saturating_sub(count))
        };
        if self.frame == end {
            let which = if outwards { "outermost" } else { "innermost" };
            return Ok(say(&format!("this is the {which} frame"))?);
        }
        self.go_to_frame(frame.min(depth.saturating_sub(1)));
        let stop = self.looked_at()?.clone();
        writeln!(terminal::stdout(), "{}", show::head(&stop, self.frame))?;
        self.show_source(0)
    }

    pub(super) fn list(&mut self, lines: Lines) -> anyhow::Result<()> {
        match (lines, self.listed) {
            (Lines::More, Some(first)) => self.show_lines(first, SOME * 2 + 1),
            (Lines::More | Lines::Here, _) => self.show_source(SOME),
            (Lines::Around(line), _) => {
                let first = line.saturating_sub(SOME).max(1);
                self.show_lines(first, SOME * 2 + 1)
            }
            (Lines::Between(first, last), _) => {
                let first = first.max(1);
                self.show_lines(first, last.saturating_sub(first).saturating_add(1))
            }
        }
    }

    /// As `p` does: `None`, too, is a value.
    pub(super) fn print(&mut self, code: String) -> anyhow::Result<()> {
        let Some(evaluated) = self.session.evaluate(code)? else {
            return Ok(());
        };
        if matches!(evaluated.outcome, Outcome::Finished { value: None }) {
            writeln!(terminal::stdout(), "None")?;
        }
        repl::show_outcome(&evaluated)?;
        Ok(())
    }

    /// The frame is looked up by its thread, since evaluated code has a frame of its own.
    pub(super) fn arguments(&mut self) -> anyhow::Result<()> {
        let (ident, depth) = (self.looked_at()?.thread, self.frame);
        let frame = format!(
            "__import__('functools').reduce(lambda frame, _: frame.f_back, range({depth}), \
             __import__('sys')._current_frames()[{ident}])"
        );
        let code = format!(
            "(lambda frame, inspect: [print(name, '=', repr(frame.f_locals[name])) for name in \
             frame.f_code.co_varnames[:frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount \
             + bool(frame.f_code.co_flags & inspect.CO_VARARGS) + bool(frame.f_code.co_flags & inspect.CO_VARKEYWORDS)] \
             if name in frame.f_locals] and None)({frame}, __import__('inspect'))"
        );
        let chosen = self.frame;
        self.session.link.go_to_stop(None, Scope::default());
        let shown = self.run(code);
        self.go_to_frame(chosen);
        shown
    }

    pub(super) fn show_displayed(&mut self) -> anyhow::Result<()> {
        let mut displayed = std::mem::take(&mut self.displayed);
        for (code, last) in &mut displayed {
            let Some(evaluated) = self.session.evaluate(code.clone())? else {
                continue;
            };
            let now = match evaluated.outcome {
                Outcome::Finished { value } => value.unwrap_or_else(|| "None".to_owned()),
                Outcome::Raised(raised) => {
                    format!("raises {}: {}", raised.exception, raised.message)
                }
                Outcome::SyntaxError { .. } => "is not Python".to_owned(),
            };
            let before = match last.as_str() {
                "" => String::new(),
                last if last == now => String::new(),
                last => format!("  [was: {last}]"),
            };
            writeln!(terminal::stdout(), "display {code}: {now}{before}")?;
            *last = now;
        }
        self.displayed = displayed;
        Ok(())
    }
}
