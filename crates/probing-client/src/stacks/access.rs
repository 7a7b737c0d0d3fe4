//! The access to a process: from outside, or else through its probe.

use std::path::PathBuf;
use std::sync::Arc;

use probing_process::error::{Denied, ProcessError};
use probing_process::procfs::processes::{self, Process};
use probing_proto::process::Pid;
use probing_stacks::{Reader, StackError};

use crate::error::{ClientError, LocalError};
use crate::probe::Probe;
use crate::probe::check_user;
use crate::probe::connection::CONNECT_TIMEOUT;
use crate::stacks::via_probe::{Line, ProbedProcess};

/// What a target turned out to be.
#[derive(Debug, Clone)]
pub(crate) enum Subject {
    Process(Box<Process>),
    /// Behind a socket is one that cannot be seen from here: in another container.
    Unseen(PathBuf),
}

/// A process that is being read.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) reader: Reader,
    /// As it is seen from here, if it is.
    process: Option<Process>,
    pub(crate) pid: Pid,
    /// By which its threads are known.
    pub(crate) own_pid: Pid,
    through: Option<ProbeAccess>,
}

/// The probe that it is read through, and why.
#[derive(Debug)]
struct ProbeAccess {
    line: Arc<Line>,
    why: String,
}

impl Access {
    pub(crate) fn to(subject: &Subject) -> Result<Self, ClientError> {
        let process = match subject {
            Subject::Process(process) => process,
            Subject::Unseen(socket) => {
                let why = "the process of this socket is not visible here".to_owned();
                return Self::through(Probe::at(socket, CONNECT_TIMEOUT)?, None, why);
            }
        };
        match Reader::open(process.pid) {
            Ok(reader) => Ok(Self {
                reader,
                process: Some((**process).clone()),
                pid: process.pid,
                own_pid: process.pid,
                through: None,
            }),
            Err(refusal) if is_refusal(&refusal) => Self::where_refused(process, refusal),
            Err(error) => Err(error.into()),
        }
    }

    fn where_refused(process: &Process, refusal: StackError) -> Result<Self, ClientError> {
        if check_user(process).is_err() {
            return Err(refusal.into());
        }
        match Probe::of_process(process) {
            Ok(probe) => Self::through(probe, Some(process.clone()), refusal.to_string()),
            Err(ClientError::NoProbe { .. }) => Err(refusal.into()),
            Err(error) => Err(ClientError::Local(LocalError::NeitherWay {
                refusal,
                probe: Box::new(error),
            })),
        }
    }

    fn through(probe: Probe, process: Option<Process>, why: String) -> Result<Self, ClientError> {
        let own_pid = probe.hello().pid;
        let inside = ProbedProcess::through(probe);
        let line = inside.line();
        let reader = Reader::of(Box::new(inside));
        let reader = reader.map_err(|error| line.trouble().unwrap_or(error.into()))?;
        Ok(Self {
            reader,
            pid: process.as_ref().map_or(own_pid, |process| process.pid),
            own_pid,
            process,
            through: Some(ProbeAccess { line, why }),
        })
    }

    /// In the memory of a process that ends anything may be found.
    pub(crate) fn checked<T>(&self, read: Result<T, StackError>) -> Result<T, ClientError> {
        // Whatever was read: some of it may be missing.
        let broken = self.through.as_ref().and_then(|way| way.line.trouble());
        match (read, broken) {
            (_, Some(broken)) => Err(broken),
            (Err(_), None) if self.is_over() => {
                let pid = self.pid;
                Err(StackError::from(ProcessError::Ended { pid }).into())
            }
            (read, None) => Ok(read?),
        }
    }

    /// Whether it is known to have ended.
    pub(crate) fn is_over(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| !processes::is_alive(process.seen_key()))
    }

    pub(crate) fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    pub(crate) fn is_through_probe(&self) -> bool {
        self.through.is_some()
    }

    /// What is to be said about how it is read.
    pub(crate) fn note(&self) -> Option<String> {
        let why = &self.through.as_ref()?.why;
        Some(format!(
            "note: {why}; read through its probe, which cannot show native frames or hold threads"
        ))
    }
}

/// Whether someone else may do what was refused to us.
fn is_refusal(error: &StackError) -> bool {
    matches!(
        error,
        StackError::Process(ProcessError::NotPermitted { reason, .. }) if *reason != Denied::KernelThread
    )
}
