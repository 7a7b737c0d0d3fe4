//! Stacks of a target, read from outside: it need not be prepared, and nothing in it runs for it.

pub(crate) mod access;
pub(crate) mod locals;
pub(crate) mod merged_tree;
pub(crate) mod source_excerpts;
pub(crate) mod source_text;
pub(crate) mod tasks;
pub(crate) mod via_probe;

use std::collections::HashMap;
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use probing_process::procfs::processes::Process;
use probing_proto::capture::Excerpt;
use probing_proto::message::threads::{ThreadFilter, ThreadNames};
use probing_proto::report::{
    BacktraceReport, FrameType, GilState, MissingFrames, ReadMethod, ReportedFrame, ReportedLocal,
    ReportedThread,
};
use probing_stacks::{
    Frame, FrameGap, FrameKind, Gil, Local, LocalLimits, Options, Pause, State, ThreadStack,
};

use crate::error::{ClientError, LocalError, SelectionError};
use crate::stacks::access::{Access, Subject};
use crate::stacks::source_text::{Owner, SourceReader};

/// What `threading` calls the main thread.
pub(crate) const MAIN: &str = "MainThread";

/// Of which threads to read what, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackQuery {
    pub threads: ThreadFilter,
    pub locals: LocalValues,
    /// Native frames, and threads that Python does not know.
    pub native: bool,
    pub pause: Pause,
    /// Also threads of the probe.
    pub probe_threads: bool,
}

/// Where the values of local variables come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LocalValues {
    #[default]
    Omitted,
    /// Read from outside: no code runs.
    FromMemory,
    /// In the program's own words, made by the probe if there is one, else read from outside.
    FromProbe,
}

impl StackQuery {
    pub(crate) fn with_probe_threads() -> Self {
        Self {
            probe_threads: true,
            ..Self::default()
        }
    }

    fn options(&self) -> Options {
        Options {
            locals: (self.locals != LocalValues::Omitted).then(LocalLimits::default),
            native: self.native,
            pause: self.pause,
            probe_threads: self.probe_threads,
            ..Options::default()
        }
    }
}

/// A process of this machine.
#[derive(Debug)]
pub(crate) struct LocalStacks {
    pub(crate) access: Access,
    pub(crate) options: Options,
    pub(crate) sources: Sources,
    threads: ThreadFilter,
}

impl LocalStacks {
    pub(crate) fn of(subject: &Subject, query: &StackQuery) -> Result<Self, ClientError> {
        if let Subject::Process(process) = subject {
            check_python(process)?;
        }
        let access = Access::to(subject)?;
        Ok(Self {
            sources: Sources::of(access.process()),
            access,
            options: query.options(),
            threads: query.threads.clone(),
        })
    }

    pub(crate) fn read(&mut self) -> Result<BacktraceReport, ClientError> {
        let taken_at = SystemTime::now().duration_since(UNIX_EPOCH);
        let read = self.access.reader.read(&self.options);
        let snapshot = self.access.checked(read)?;
        let holders = GilHolders::of(&snapshot.threads);
        let threads = select(snapshot.threads, &self.threads, names, title)?;
        let threads = threads.into_iter().map(|thread| {
            let gil_holder = holders.for_whom_waits(&thread);
            let reported = reported(thread, &mut self.sources);
            ReportedThread {
                gil_holder,
                ..reported
            }
        });
        Ok(BacktraceReport {
            pid: self.access.pid,
            python: format!("{}.{}", snapshot.python.0, snapshot.python.1),
            threads: threads.collect(),
            taken_at_nanos: taken_at.unwrap_or_default().as_nanos() as u64,
            took_seconds: snapshot.took.as_secs_f64(),
            paused_seconds: snapshot.paused.as_secs_f64(),
            threads_without_native: snapshot.without_native,
            read: if self.access.is_through_probe() {
                ReadMethod::Probe
            } else {
                ReadMethod::Outside
            },
            notes: self.access.note().into_iter().collect(),
        })
    }

    /// Lines of the source files that the frames of a report are in, as far as they can be read from here.
    pub(crate) fn excerpts(&self, report: &BacktraceReport) -> Vec<Excerpt> {
        let Some(owner) = self.sources.owner else {
            return Vec::new();
        };
        let mut reader = SourceReader::of(owner);
        let text = |file: &str| Some(reader.read(Path::new(file)));
        source_excerpts::read_excerpts(report, text)
    }
}

pub(crate) fn check_python(process: &Process) -> Result<(), ClientError> {
    let own = rustix::process::geteuid();
    match process.python {
        Some(_) => Ok(()),
        // What it is cannot be told from here; whoever looks closer is told why.
        None if process.uid != own.as_raw() && !own.is_root() => Ok(()),
        None if process.is_hidden() => Ok(()),
        None => Err(ClientError::Local(LocalError::NotPython {
            pid: process.pid,
            command: process.command.join(" "),
        })),
    }
}

/// Which thread holds the GIL and where it is, in words: `thread 4243 (loader) holds the GIL in fetch (data.py:42)`.
pub(crate) fn gil_holder(subject: &Subject) -> Option<String> {
    let mut stacks = LocalStacks::of(subject, &StackQuery::with_probe_threads()).ok()?;
    gil_holder_in(&stacks.read().ok()?)
}

pub(crate) fn gil_holder_in(report: &BacktraceReport) -> Option<String> {
    let mut threads = report.threads.iter();
    let holder = threads.find(|thread| thread.gil == GilState::Holds)?;
    let thread = holder
        .thread_id
        .map_or_else(String::new, |tid| format!(" {tid}"));
    let name = holder
        .thread_name
        .as_ref()
        .map_or_else(String::new, |name| format!(" ({name})"));
    let place = holder.frames.first().map_or_else(String::new, |frame| {
        let line = frame
            .lineno
            .map_or_else(String::new, |line| format!(":{line}"));
        format!(" in {} ({}{line})", frame.func, frame.file)
    });
    Some(format!("thread{thread}{name} holds the GIL{place}"))
}

/// The threads that are wanted; an error says which there are.
pub(crate) fn select<T>(
    mut threads: Vec<T>,
    filter: &ThreadFilter,
    names: impl Fn(&T) -> ThreadNames<'_>,
    title: impl Fn(&T) -> String,
) -> Result<Vec<T>, ClientError> {
    let titles: Vec<String> = match filter {
        ThreadFilter::These(_) => threads.iter().map(title).collect(),
        ThreadFilter::All | ThreadFilter::Main => Vec::new(),
    };
    threads.retain(|thread| filter.selects(names(thread)));
    match filter {
        ThreadFilter::These(wanted) if threads.is_empty() => {
            Err(ClientError::Selection(SelectionError::NoThread {
                wanted: wanted.clone(),
                threads: titles,
            }))
        }
        ThreadFilter::Main if threads.is_empty() => {
            Err(ClientError::Selection(SelectionError::NoMainThread))
        }
        _ => Ok(threads),
    }
}

/// Who holds which GIL: interpreters have one together, or each its own.
struct GilHolders(Vec<(i64, String)>);

impl GilHolders {
    fn of(threads: &[ThreadStack]) -> Self {
        let holders = threads.iter().filter(|thread| thread.gil == Gil::Holds);
        let named = holders.map(|thread| {
            let id = thread
                .tid
                .map_or_else(|| "?".to_owned(), |tid| tid.to_string());
            let words = name(thread).map_or_else(|| id.clone(), |name| format!("{name} ({id})"));
            (thread.interpreter, words)
        });
        Self(named.collect())
    }

    fn for_whom_waits(&self, thread: &ThreadStack) -> Option<String> {
        if thread.gil != Gil::Waits {
            return None;
        }
        let own = self
            .0
            .iter()
            .find(|(interpreter, _)| *interpreter == thread.interpreter);
        let found = own.or_else(|| self.0.first().filter(|_| self.0.len() == 1));
        found.map(|(_, words)| words.clone())
    }
}

pub(crate) fn reported(thread: ThreadStack, sources: &mut Sources) -> ReportedThread {
    ReportedThread {
        thread_id: thread.tid,
        ident: thread.ident,
        thread_name: name(&thread),
        runs_thread: thread.runs_thread.clone(),
        daemon: thread.daemon,
        main: thread.is_main,
        state: match &thread.state {
            State::Running => "running".to_owned(),
            State::Asleep => "asleep".to_owned(),
            State::Stopped => "stopped".to_owned(),
            State::Syscall {
                name: Some(name), ..
            } => (*name).to_owned(),
            State::Syscall { number, .. } => format!("system call {number}"),
        },
        gil: match thread.gil {
            Gil::Holds => GilState::Holds,
            Gil::Waits => GilState::Waits,
            Gil::Free => GilState::Free,
        },
        gil_holder: None,
        // Of a thread that Python does not know, -1.
        interpreter: Some(thread.interpreter).filter(|number| *number > 0),
        complete: thread.missing == FrameGap::Nothing,
        missing: match thread.missing {
            FrameGap::Nothing => None,
            FrameGap::Inner => Some(MissingFrames::Inner),
            FrameGap::Outer => Some(MissingFrames::Outer),
            FrameGap::Native => Some(MissingFrames::Native),
        },
        frames: sources.frames(thread.frames),
    }
}

fn reported_local(local: Local) -> ReportedLocal {
    ReportedLocal {
        name: local.name,
        value: local.value,
        kind: local.kind,
    }
}

/// As Python calls it. The main thread's object cannot be found from its frames; hardly anybody renames it.
fn name(thread: &ThreadStack) -> Option<String> {
    if thread.is_main {
        return Some(MAIN.to_owned());
    }
    thread.name.clone()
}

/// What it is selected by.
pub(crate) fn names(thread: &ThreadStack) -> ThreadNames<'_> {
    ThreadNames {
        is_main: thread.is_main,
        name: if thread.is_main {
            Some(MAIN)
        } else {
            thread.name.as_deref()
        },
        ident: thread.ident,
        thread_id: thread.tid,
    }
}

/// Name and id: `loader-3 (4243)`.
pub(crate) fn title(thread: &ThreadStack) -> String {
    let id = thread
        .tid
        .map_or_else(|| "?".to_owned(), |id| id.to_string());
    name(thread).map_or_else(|| id.clone(), |name| format!("{name} ({id})"))
}

/// Source files of a target, as the target sees them, each read once.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Of one that cannot be seen, neither can be its files.
    owner: Option<Owner>,
    files: Vec<SourceFile>,
    /// Which of the files it is.
    places: HashMap<Arc<Path>, usize>,
    /// The file that was asked for last: frames that follow each other are often from one.
    latest: Option<(Arc<Path>, usize)>,
    reader: Option<SourceReader>,
}

/// A file that code is from.
#[derive(Debug)]
struct SourceFile {
    /// Its path in words.
    shown: Arc<str>,
    /// Read when first needed.
    text: Option<SourceText>,
}

/// What stands in a file, and where its lines begin: of most of them nobody asks.
#[derive(Debug)]
struct SourceText {
    text: String,
    begins: Vec<u32>,
    asked: HashMap<u32, Option<Arc<str>>>,
}

impl SourceText {
    fn of(text: String) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end as u32 + 1);
        Self {
            begins: iter::once(0).chain(ends).collect(),
            asked: HashMap::new(),
            text,
        }
    }

    /// A line by its number, without its indentation; `None` of an empty one.
    fn line(&mut self, number: u32) -> Option<Arc<str>> {
        let Self {
            text,
            begins,
            asked,
        } = self;
        let entry = asked.entry(number).or_insert_with(|| {
            let begin = *begins.get((number as usize).checked_sub(1)?)? as usize;
            let line = text.get(begin..)?.lines().next()?.trim();
            (!line.is_empty()).then(|| line.into())
        });
        entry.clone()
    }
}

impl Sources {
    pub(crate) fn of(process: Option<&Process>) -> Self {
        let owner = process.map(Owner::of);
        Self {
            owner,
            files: Vec::new(),
            places: HashMap::new(),
            latest: None,
            reader: owner.map(SourceReader::of),
        }
    }

    /// Frames with their source lines.
    pub(crate) fn frames(&mut self, frames: Vec<Frame>) -> Vec<ReportedFrame> {
        let reported = |(depth, frame): (usize, Frame)| {
            let (frame_type, address) = match frame.kind {
                FrameKind::Python => (FrameType::Python, None),
                FrameKind::Native { address } => (FrameType::Native, Some(address)),
            };
            let locals = |locals: Vec<Local>| locals.into_iter().map(reported_local).collect();
            let source_file = frame.source_file.as_ref();
            ReportedFrame {
                source: self.line(source_file.unwrap_or(&frame.file), frame.line),
                source_file: source_file.map(|file| file.display().to_string()),
                file: self.file(&frame.file).shown.clone(),
                func: frame.func,
                lineno: frame.line,
                depth,
                frame_type,
                address,
                locals: frame.locals.map(locals),
                more_locals: frame.more_locals,
            }
        };
        frames.into_iter().enumerate().map(reported).collect()
    }

    fn file(&mut self, path: &Arc<Path>) -> &mut SourceFile {
        let latest = self.latest.as_ref();
        let place = match latest.filter(|(latest, _)| Arc::ptr_eq(latest, path)) {
            Some((_, place)) => *place,
            None => self.place(path),
        };
        &mut self.files[place]
    }

    fn place(&mut self, path: &Arc<Path>) -> usize {
        let files = &mut self.files;
        let place = *self.places.entry(path.clone()).or_insert_with(|| {
            files.push(SourceFile {
                shown: path.display().to_string().into(),
                text: None,
            });
            files.len() - 1
        });
        self.latest = Some((path.clone(), place));
        place
    }

    fn line(&mut self, path: &Arc<Path>, line: Option<u32>) -> Option<Arc<str>> {
        let number = line?;
        if self.file(path).text.is_none() {
            let text = self.reader.as_mut()?.read(path);
            self.file(path).text = Some(SourceText::of(text));
        }
        self.file(path).text.as_mut()?.line(number)
    }
}
