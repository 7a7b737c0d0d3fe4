//! What `-t` means.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use probing_attach::Report as AttachReport;
use probing_capture::Capture;
use probing_process::procfs::processes::{self, Process};
use probing_proto::process::Pid;
use probing_proto::report::BacktraceReport;

use crate::agent::{Endpoint, Node};
use crate::error::{AgentError, ClientError, FileError, LocalError, SelectionError};
use crate::probe::connection::CONNECT_TIMEOUT;
use crate::probe::socket_path;
use crate::probe::{Entry, Probe, check_user};
use crate::stacks::access::Subject;
use crate::stacks::locals;
use crate::storage::core_file::CoreFileInfo;
use crate::storage::recording::Recording;
use crate::targets::attach;
use crate::targets::proc_info::host_name;
use crate::targets::roles::retain_programs;

/// A process to look at, as the user named it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// `4242`
    Local(Pid),
    /// `unix:/run/x/probe.sock`
    Socket(PathBuf),
    /// `train.py`: the one Python process that is called so.
    Name(String),
    /// `host:8080/4242`: a process on the machine of an agent.
    Remote(Remote),
    /// `x.probe`: a process as it was, in a file.
    Capture(PathBuf),
    /// Whoever may be on the machine of an agent that does not say.
    Unlisted(UnlistedAgent),
}

/// An agent that does not say who is on its machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnlistedAgent {
    pub(crate) endpoint: Endpoint,
    pub(crate) why: String,
}

impl UnlistedAgent {
    pub(crate) fn error(&self) -> ClientError {
        ClientError::Agent(AgentError::Unlisted {
            why: self.why.clone(),
        })
    }
}

/// A process on the machine of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    pub node: Arc<Node>,
    pub pid: Pid,
}

impl Hash for Remote {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.node.endpoint(), self.pid).hash(state);
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node.endpoint(), self.pid)
    }
}

/// The text names no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotATarget {
    #[error("not a pid, a program's name, HOST:PORT, unix:PATH or all")]
    Empty,
    #[error("unix: needs the path of a socket")]
    NoPath,
}

/// As `-t` parses it (`TargetSelector`).
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(pid) => pid.fmt(f),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
            Self::Name(name) => name.fmt(f),
            Self::Remote(remote) => remote.fmt(f),
            Self::Capture(path) => path.display().fmt(f),
            Self::Unlisted(UnlistedAgent { endpoint, .. }) => endpoint.fmt(f),
        }
    }
}

/// A target's probe, and how it got there if we brought it.
#[derive(Debug)]
pub struct ConnectedProbe {
    pub probe: Probe,
    pub attached: Option<AttachReport>,
}

impl Target {
    /// Connects to the target's probe.
    pub fn connect(&self, entry: &Entry) -> Result<ConnectedProbe, ClientError> {
        match self {
            Self::Local(pid) => connect_to(&process(*pid)?, entry),
            Self::Name(name) => connect_to(&named(name)?, entry),
            Self::Socket(path) => Ok(ConnectedProbe {
                probe: Probe::at(path, CONNECT_TIMEOUT)?,
                attached: None,
            }),
            Self::Remote(Remote { node, pid }) => {
                let (probe, attached) = node.connect(*pid, entry)?;
                let attached = attached.as_ref().and_then(attach::by_agent);
                Ok(ConnectedProbe { probe, attached })
            }
            Self::Capture(path) => Err(ClientError::only_kept(path)),
            Self::Unlisted(unsaid) => Err(unsaid.error()),
        }
    }

    /// What the machine is called that it runs on; `None` when nobody says, or it runs no more.
    pub fn host(&self) -> Option<String> {
        match self {
            Self::Local(_) | Self::Name(_) | Self::Socket(_) => Some(host_name()),
            Self::Remote(remote) => remote.node.host().map(str::to_owned),
            Self::Capture(_) | Self::Unlisted(_) => None,
        }
    }

    /// Whether its pid is none of this machine, now.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Remote(_) | Self::Capture(_) | Self::Unlisted(_))
    }
}

impl Target {
    /// Has the probe put the locals of a report into the program's own words. Does nothing without a probe.
    pub fn tell_locals(&self, report: &mut BacktraceReport) -> Result<(), ClientError> {
        let probe = match self {
            Self::Socket(path) => Probe::at(path, CONNECT_TIMEOUT),
            Self::Local(_) | Self::Name(_) => Probe::of_process(&self.process()?),
            // Its agent has asked it already, or whoever captured it.
            Self::Remote(_) | Self::Capture(_) | Self::Unlisted(_) => return Ok(()),
        };
        match probe {
            Err(ClientError::NoProbe { .. }) => Ok(()),
            probe => locals::ask(&mut probe?, report),
        }
    }

    /// What it has recorded, living or dead; `None` when it has not. Needs no probe and runs nothing in it.
    pub fn recording(&self) -> Result<Option<Recording>, ClientError> {
        if let Self::Capture(path) = self {
            return Ok(Recording::of_capture(&Capture::open(path)?));
        }
        let gone = match (self.process(), self) {
            (Ok(process), _) => return Recording::of_process(&process),
            (Err(gone), Self::Local(pid)) => match Recording::of_dead(*pid) {
                Some(recording) => return Ok(Some(recording)),
                None => gone,
            },
            (Err(gone), _) => gone,
        };
        Err(gone)
    }

    /// Whether its process is there and not dead.
    pub fn is_alive(&self) -> bool {
        self.process().is_ok()
    }

    pub(crate) fn process(&self) -> Result<Process, ClientError> {
        match self.subject()? {
            Subject::Process(process) => Ok(*process),
            Subject::Unseen(socket) => Err(ClientError::Local(LocalError::Unseen { socket })),
        }
    }

    pub(crate) fn subject(&self) -> Result<Subject, ClientError> {
        let process = match self {
            Self::Local(pid) => process(*pid)?,
            Self::Name(name) => named(name)?,
            Self::Socket(path) => {
                let key = Probe::at(path, CONNECT_TIMEOUT)?.hello().key();
                match processes::with_key(key) {
                    Some(process) => process,
                    None => return Ok(Subject::Unseen(path.clone())),
                }
            }
            Self::Remote(remote) => {
                let target = remote.to_string();
                return Err(ClientError::Agent(AgentError::Elsewhere { target }));
            }
            Self::Capture(path) => return Err(ClientError::only_kept(path)),
            Self::Unlisted(unsaid) => return Err(unsaid.error()),
        };
        Ok(Subject::Process(Box::new(process)))
    }
}

fn process(pid: Pid) -> Result<Process, ClientError> {
    Process::read(pid).ok_or_else(|| {
        if processes::is_dead(pid) {
            return ClientError::Local(LocalError::Zombie { pid });
        }
        match socket_path::left_by(pid) {
            Some(folder) => ClientError::Local(LocalError::LeftFolder { pid, folder }),
            None => ClientError::Local(LocalError::NoSuchProcess { pid }),
        }
    })
}

fn connect_to(process: &Process, entry: &Entry) -> Result<ConnectedProbe, ClientError> {
    check_user(process)?;
    let pid = process.pid;
    let probe = match (Probe::of_process(process), entry) {
        (Err(ClientError::NoProbe { .. }), _)
            if process.python.is_none() && !process.is_hidden() =>
        {
            return Err(ClientError::Local(LocalError::NotPython {
                pid,
                command: process.command.join(" "),
            }));
        }
        (Err(ClientError::NoProbe { .. }), Entry::Attach(options)) => {
            let report = attach::attach(process, options)?;
            return Ok(ConnectedProbe {
                probe: Probe::of_process(process)?,
                attached: Some(report),
            });
        }
        (probe, _) => probe?,
    };
    Ok(ConnectedProbe {
        probe,
        attached: None,
    })
}

fn named(name: &str) -> Result<Process, ClientError> {
    // First: whoever looks at it with another tool has its path in the arguments.
    if let Some(left) = CoreFileInfo::by(Path::new(name)) {
        let left = left.to_string();
        let path = name.into();
        return Err(ClientError::File(FileError::CoreFile { path, left }));
    }
    let mut matches: Vec<Process> = processes::all_python()
        .into_iter()
        .filter(|process| process.is_named(name))
        .collect();
    retain_programs(&mut matches);
    match matches.len() {
        0 => Err(ClientError::Selection(SelectionError::NoneNamed {
            name: name.to_owned(),
        })),
        1 => Ok(matches.remove(0)),
        _ => Err(ClientError::Selection(SelectionError::SeveralNamed {
            name: name.to_owned(),
            matches: matches
                .iter()
                .map(|process| (process.pid, process.command.join(" ")))
                .collect(),
        })),
    }
}
