//! The debugger on a capture, which shows stacks, source and variables and runs nothing.
//!
//! One looks around, at stacks, source and variables; nothing runs, and what would need the living process is
//! refused.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use probing_capture::Capture;
use probing_proto::capture::{Excerpt, Manifest};
use probing_proto::message::breakpoints::{Source, SourceLocation};
use probing_proto::paths::History;
use probing_proto::report::{FrameType, ReportedFrame, ReportedThread};
use probing_proto::text::function_lines;
use probing_proto::text::visible;
use reedline::{Completer, Suggestion};

use crate::arguments::DebugArguments;
use crate::commands::breakpoints::text;
use crate::commands::debug::commands::{self, Lines, Order};
use crate::commands::debug::script::Script;
use crate::commands::debug::{is_complete, show};
use crate::commands::repl::completion::suggestion;
use crate::commands::repl::editor::{Editor, PromptLanguage, Read, ReadInterrupt};
use crate::commands::repl::session::say;
use crate::errors;
use crate::exit::{self, Status};
use crate::terminal;

/// Lines that `l` shows on each side.
const AROUND: u32 = 5;

pub(super) fn run(path: &Path, arguments: &DebugArguments) -> anyhow::Result<Status> {
    let mut kept = CaptureView::open(path)?;
    if arguments.request().is_some() {
        bail!("a capture has no breakpoints; run `debug` without a place");
    }
    kept.show_head()?;
    if terminal::is_interactive() {
        kept.at_terminal()?;
    } else {
        let mut script = Script::begin()?;
        while let Some(text) = script.next()? {
            if !kept.take(&text)? {
                break;
            }
        }
    }
    Ok(exit::OK)
}

/// A capture that is looked at.
struct CaptureView {
    name: String,
    manifest: Manifest,
    /// Those that Python knows.
    threads: Vec<ReportedThread>,
    sources: Vec<Excerpt>,
    thread: usize,
    frame: usize,
}

impl CaptureView {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let capture = Capture::open(path)?;
        let mut threads = capture.stacks()?.threads;
        for thread in &mut threads {
            let is_python = |frame: &ReportedFrame| frame.frame_type == FrameType::Python;
            thread.frames.retain(is_python);
        }
        threads.retain(|thread| !thread.frames.is_empty());
        let manifest = capture.manifest().clone();
        // A thread that had stopped is why one looks, else the main thread.
        let stopped = manifest.stops.first().map(|stop| stop.thread);
        let is_first = |thread: &ReportedThread| match stopped {
            Some(ident) => thread.ident == ident,
            None => thread.main,
        };
        let thread = threads.iter().position(is_first).unwrap_or(0);
        if threads.is_empty() {
            bail!(
                "no Python code ran in it, or its stacks could not be read: {}",
                path.display()
            );
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            sources: capture.sources().unwrap_or_default(),
            manifest,
            threads,
            thread,
            frame: 0,
        })
    }

    fn at_terminal(&mut self) -> anyhow::Result<()> {
        let colours = terminal::has_colours();
        let frames = self.threads.iter().flat_map(|thread| &thread.frames);
        let names = frames.flat_map(|frame| frame.locals.iter().flatten());
        let mut names: Vec<String> = names.map(|local| local.name.to_string()).collect();
        names.sort_unstable();
        names.dedup();
        let speech = PromptLanguage {
            completer: Box::new(CaptureCompleter(names)),
            is_complete,
            history: History::Debugger,
            mark: " > ",
        };
        let mut editor = Editor::new(speech, colours, Arc::<ReadInterrupt>::default());
        loop {
            match editor.read(self.prompt())? {
                Read::Text(text) => {
                    if !self.take(&text)? {
                        return Ok(());
                    }
                }
                Read::News => {}
                Read::Leave | Read::TargetEnded => return Ok(()),
            }
        }
    }

    fn prompt(&self) -> String {
        let place = self.spot().as_ref().map_or_else(String::new, show::short);
        format!("{} {place} (capture)", self.name)
    }

    /// Does what was typed; whether there is more to come.
    fn take(&mut self, text: &str) -> anyhow::Result<bool> {
        let order = Order::of(text);
        if order == Order::Quit {
            return Ok(false);
        }
        if let Err(error) = self.obey(order) {
            errors::print(&error)?;
        }
        Ok(true)
    }

    fn obey(&mut self, order: Order) -> anyhow::Result<()> {
        let mut out = terminal::stdout();
        match order {
            Order::Again | Order::Quit => {}
            Order::Up(count) => self.go_to(self.frame.saturating_add(count as usize))?,
            Order::Down(count) => self.go_to(self.frame.saturating_sub(count as usize))?,
            Order::Where => {
                let frames: Vec<SourceLocation> = self.frames().iter().map(spot_of).collect();
                write!(out, "{}", show::stack(&frames, self.frame))?;
            }
            Order::List(lines) => self.list(lines)?,
            Order::LongList => self.show_function()?,
            Order::Print(code) | Order::Pretty(code) | Order::Code(code) => {
                let value = self.value(code.trim())?;
                writeln!(out, "{value}")?;
            }
            Order::WhatIs(name) => {
                let kind = self.local(name.trim())?.kind.clone();
                writeln!(out, "{}", kind.as_deref().unwrap_or("not known"))?;
            }
            Order::Arguments => {
                for local in self.frame()?.locals.iter().flatten() {
                    let (name, value) = (visible::line(&local.name), visible::line(&local.value));
                    writeln!(out, "{name} = {value}")?;
                }
            }
            Order::Stops => self.show_threads()?,
            Order::GoTo(number) => self.go_to_thread(number as usize)?,
            Order::Help(about) => match commands::help(about.as_deref()) {
                Ok(text) => {
                    write!(out, "{text}")?;
                    say("In a capture: u d w l ll p pp whatis a stops stop h q.")?;
                }
                Err(why) => say(&why)?,
            },
            Order::Wrong(why) => say(&why)?,
            _ => bail!(
                "not possible in a capture of process {}: it needs the running process",
                self.manifest.pid
            ),
        }
        Ok(())
    }

    fn show_head(&self) -> anyhow::Result<()> {
        let Manifest {
            pid, host, reason, ..
        } = &self.manifest;
        let (host, reason) = (visible::line(host), visible::line(reason));
        say(&format!("capture of process {pid} on {host}: {reason}"))?;
        self.show_place()
    }

    fn show_place(&self) -> anyhow::Result<()> {
        let thread = &self.threads[self.thread];
        let spot = spot_of(self.frame()?);
        let name = visible::line(thread.thread_name.as_deref().unwrap_or("a thread"));
        let mut out = terminal::stdout();
        writeln!(out, "> {}  [{name}, {}]", text::spot(&spot), thread.state)?;
        self.show_lines(spot.lineno.saturating_sub(2), spot.lineno + 2)
            .ok();
        Ok(())
    }

    fn show_threads(&self) -> anyhow::Result<()> {
        let mut out = terminal::stdout();
        for (number, thread) in self.threads.iter().enumerate() {
            let name = visible::line(thread.thread_name.as_deref().unwrap_or("a thread"));
            let spot = text::spot(&spot_of(&thread.frames[0]));
            let mark = if number == self.thread { ">" } else { " " };
            writeln!(
                out,
                "{mark} {}  {name} in {spot}, {}",
                number + 1,
                thread.state
            )?;
        }
        Ok(())
    }

    fn go_to_thread(&mut self, number: usize) -> anyhow::Result<()> {
        let index = number
            .checked_sub(1)
            .filter(|index| *index < self.threads.len());
        let Some(index) = index else {
            bail!(
                "no thread {number}: `stops` lists all {}",
                self.threads.len()
            );
        };
        (self.thread, self.frame) = (index, 0);
        self.show_place()
    }

    fn go_to(&mut self, frame: usize) -> anyhow::Result<()> {
        let last = self.frames().len() - 1;
        if frame.min(last) == self.frame {
            bail!(if frame > last {
                "this is the outermost frame"
            } else {
                "this is the innermost frame"
            });
        }
        self.frame = frame.min(last);
        self.show_place()
    }

    fn list(&self, lines: Lines) -> anyhow::Result<()> {
        let here = self.frame()?.lineno.unwrap_or(1);
        let (first, last) = match lines {
            Lines::More | Lines::Here => (here.saturating_sub(AROUND), here + AROUND),
            Lines::Around(line) => (line.saturating_sub(AROUND), line + AROUND),
            Lines::Between(first, last) => (first, last),
        };
        self.show_lines(first, last)
    }

    /// As much of it as the capture has.
    fn show_function(&self) -> anyhow::Result<()> {
        let here = self.frame()?.lineno.unwrap_or(1);
        let excerpt = self.excerpt(here, here)?;
        let (first, last) = function_lines::around(&excerpt.lines, here - excerpt.first + 1);
        self.show_lines(excerpt.first + first - 1, excerpt.first + last - 1)
    }

    /// One that has some of these lines.
    fn excerpt(&self, first: u32, last: u32) -> anyhow::Result<&Excerpt> {
        let frame = self.frame()?;
        let excerpts = self.sources.iter().filter(|it| *it.file == *frame.file);
        let mut excerpts =
            excerpts.filter(|it| it.first <= last && it.first + it.lines.len() as u32 > first);
        excerpts.next().with_context(|| {
            format!(
                "the capture has no such lines of {}: only those of the functions on its stacks",
                frame.file
            )
        })
    }

    /// Those that the capture has.
    fn show_lines(&self, first: u32, last: u32) -> anyhow::Result<()> {
        let frame = self.frame()?;
        let excerpt = self.excerpt(first, last)?;
        let begin = first.max(excerpt.first);
        let lines = excerpt.lines.iter().skip((begin - excerpt.first) as usize);
        let lines = lines.take((last - begin + 1) as usize).cloned().collect();
        let source = Source {
            first: begin,
            lines,
            of: 0,
        };
        let current = frame.lineno.unwrap_or(0);
        write!(terminal::stdout(), "{}", show::source(&source, current))?;
        Ok(())
    }

    fn frames(&self) -> &[ReportedFrame] {
        &self.threads[self.thread].frames
    }

    fn frame(&self) -> anyhow::Result<&ReportedFrame> {
        self.frames().get(self.frame).context("no such frame")
    }

    fn spot(&self) -> Option<SourceLocation> {
        self.frame().ok().map(spot_of)
    }

    fn value(&self, name: &str) -> anyhow::Result<String> {
        Ok(self.local(name)?.value.to_string())
    }

    fn local(&self, name: &str) -> anyhow::Result<&probing_proto::report::ReportedLocal> {
        let locals = self.frame()?.locals.as_deref().unwrap_or_default();
        let found = locals.iter().find(|local| *local.name == *name);
        found.with_context(|| {
            let names: Vec<&str> = locals.iter().map(|local| &*local.name).collect();
            format!(
                "a capture runs no code; it has the variables of its frames: {}",
                names.join(", ")
            )
        })
    }
}

fn spot_of(frame: &ReportedFrame) -> SourceLocation {
    SourceLocation {
        func: frame.func.to_string(),
        file: frame.file.to_string(),
        lineno: frame.lineno.unwrap_or(0),
    }
}

/// What Tab offers: commands, and names of variables that were captured.
struct CaptureCompleter(Vec<String>);

impl Completer for CaptureCompleter {
    fn complete(&mut self, line: &str, pos: usize) -> Vec<Suggestion> {
        let text = &line[..pos];
        let start = text.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let start = start.map_or(0, |at| at + 1);
        let commands = commands::names(text).filter(|_| start == 0);
        let commands = commands.map(|(name, does)| suggestion(name, 0, pos, Some(does)));
        let names = self
            .0
            .iter()
            .filter(|name| name.starts_with(&text[start..]));
        let names = names.map(|name| suggestion(name, start, pos, None));
        commands.chain(names).collect()
    }
}
