//! The stacks of a target, wherever it is: of this machine, behind an agent, in a capture.

use probing_proto::agent::StacksRequest;
use probing_proto::capture::Excerpt;
use probing_proto::message::threads::{ThreadFilter, ThreadSelector};
use probing_proto::process::Pid;
use probing_proto::report::{BacktraceReport, ReportedThread, TasksReport};
use probing_stacks::Pause;

use crate::error::ClientError;
use crate::stacks::{self, LocalStacks, LocalValues, StackQuery};
use crate::storage::capture::CapturedStacks;
use crate::targets::target::{Remote, Target};

/// The stacks of one process, to be read again and again.
#[derive(Debug)]
pub struct Stacks {
    source: StackSource,
    /// Asked for the values of locals.
    probed: Option<Target>,
}

/// Where they are read.
#[derive(Debug)]
enum StackSource {
    Local(Box<LocalStacks>),
    /// On its machine, by its agent.
    Remote(RemoteStacks),
    /// In a file.
    Captured(Box<CapturedStacks>),
}

impl Stacks {
    pub(crate) fn of(target: &Target, query: &StackQuery) -> Result<Self, ClientError> {
        let source = match target {
            Target::Remote(remote) => StackSource::Remote(RemoteStacks {
                remote: remote.clone(),
                query: query.clone(),
            }),
            Target::Capture(path) => {
                StackSource::Captured(Box::new(CapturedStacks::open(path, query)?))
            }
            _ => StackSource::Local(Box::new(LocalStacks::of(&target.subject()?, query)?)),
        };
        let probed = (query.locals == LocalValues::FromProbe).then(|| target.clone());
        Ok(Self { source, probed })
    }

    pub fn pid(&self) -> Pid {
        match &self.source {
            StackSource::Local(local) => local.access.pid,
            StackSource::Remote(remote) => remote.remote.pid,
            StackSource::Captured(captured) => captured.pid(),
        }
    }

    /// The stacks of the threads that are wanted, main first, with their source lines.
    pub fn read(&mut self) -> Result<BacktraceReport, ClientError> {
        let mut report = match &mut self.source {
            StackSource::Local(local) => local.read()?,
            StackSource::Remote(remote) => remote.read()?,
            StackSource::Captured(captured) => captured.read()?,
        };
        let told = match &self.probed {
            Some(target) => target.tell_locals(&mut report),
            None => Ok(()),
        };
        if let Err(error) = told {
            let pid = report.pid;
            report.notes.push(format!(
                "note: values of {pid} are those read from outside: {error}"
            ));
        }
        Ok(report)
    }

    /// All asyncio tasks that are not done, with their source lines.
    pub fn tasks(&mut self) -> Result<TasksReport, ClientError> {
        match &mut self.source {
            StackSource::Local(local) => local.tasks(),
            StackSource::Remote(remote) => remote.tasks(),
            StackSource::Captured(captured) => captured.tasks(),
        }
    }

    /// Lines of the source files that the frames of a report are in, as far as they can be read from here.
    pub fn excerpts(&self, report: &BacktraceReport) -> Vec<Excerpt> {
        match &self.source {
            StackSource::Local(local) => local.excerpts(report),
            StackSource::Remote(_) => Vec::new(),
            StackSource::Captured(captured) => captured.sources(),
        }
    }
}

/// A process on another machine.
#[derive(Debug)]
struct RemoteStacks {
    remote: Remote,
    query: StackQuery,
}

impl RemoteStacks {
    fn read(&self) -> Result<BacktraceReport, ClientError> {
        self.remote.node.stacks(&self.request())
    }

    fn tasks(&self) -> Result<TasksReport, ClientError> {
        self.remote.node.stacks(&StacksRequest {
            tasks: true,
            all: false,
            thread: None,
            ..self.request()
        })
    }

    fn request(&self) -> StacksRequest {
        let query = &self.query;
        StacksRequest {
            pid: Some(self.remote.pid),
            all: query.threads == ThreadFilter::All,
            thread: match &query.threads {
                ThreadFilter::These(thread) => Some(thread.clone()),
                ThreadFilter::All | ThreadFilter::Main => None,
            },
            locals: query.locals != LocalValues::Omitted,
            native: query.native,
            pause: query.pause == Pause::Moving,
            probe_threads: query.probe_threads,
            ..StacksRequest::default()
        }
    }
}

impl Target {
    /// Its stacks, read from outside. Needs no probe.
    pub fn stacks(&self, query: &StackQuery) -> Result<Stacks, ClientError> {
        Stacks::of(self, query)
    }

    /// Which thread of it holds the GIL and where, if any does and we may look.
    pub fn gil_holder(&self) -> Option<String> {
        let stacks = self.stacks(&StackQuery::with_probe_threads());
        stacks::gil_holder_in(&stacks.ok()?.read().ok()?)
    }

    /// The stack of one thread, by `threading.get_ident()`, if it can be read. The thread may be the probe's.
    pub fn stack(&self, ident: u64) -> Option<ReportedThread> {
        let query = StackQuery {
            threads: ThreadFilter::These(ThreadSelector::from(ident.to_string())),
            ..StackQuery::with_probe_threads()
        };
        let threads = self.stacks(&query).ok()?.read().ok()?.threads;
        threads.into_iter().find(|thread| thread.ident == ident)
    }
}
