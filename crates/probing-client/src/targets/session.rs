//! A target that a program stays in touch with: found once, watched for its end, its connections used again.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use probing_process::procfs::processes::{self, Process, PythonVersion};
use probing_proto::message::Hello;
use probing_proto::process::ProcessKey;
use probing_proto::report::ProbeState;
use probing_proto::wire::json_lines::{LINES, TargetHello};
use rustix::process::PidfdFlags;

use crate::error::{ClientError, LocalError};
use crate::probe::{Entry, Probe, check_user};
use crate::stacks;
use crate::targets::target::{Remote, Target};

/// Connections that are kept for the next request. A burst of requests makes more; the probe has room for 64.
const KEPT: usize = 4;

/// One process, however it was named. Nothing is brought into it before [`Contact::probe`] is called.
#[derive(Debug)]
pub struct Contact {
    /// What is dialled.
    target: Target,
    /// The process as seen from here; none when it cannot be seen (a socket of another pid namespace).
    process: Option<ProcessKey>,
    /// Readable when the process has ended; none on kernels that have no such thing.
    end: Option<OwnedFd>,
    entry: Entry,
    about: TargetHello,
    /// Held while a connection is made, so that requests at the same time do not attach twice.
    entering: Mutex<()>,
    kept: Mutex<Vec<Probe>>,
}

impl Contact {
    /// Finds the process that `target` means now. It stays that one, whoever gets its pid or its name later.
    pub fn with(target: &Target, entry: Entry) -> Result<Self, ClientError> {
        let (target, process, probe, about) = match target {
            Target::Socket(_) => {
                let probe = target.connect(&Entry::Forbidden)?.probe;
                let key = probe.hello().key();
                let process = Process::read(key.pid).filter(|process| process.has_key(key));
                let about = about_hello(probe.hello(), process.as_ref());
                (target.clone(), process, Some(probe), about)
            }
            Target::Local(_) | Target::Name(_) => {
                let process = target.process()?;
                check_user(&process)?;
                stacks::check_python(&process)?;
                // Not there, or not to be had: that is told when it is needed.
                let probe = Probe::of_process(&process).ok();
                let about = match &probe {
                    Some(probe) => about_hello(probe.hello(), Some(&process)),
                    None => about_process(&process),
                };
                (Target::Local(process.pid), Some(process), probe, about)
            }
            Target::Capture(path) => return Err(ClientError::only_kept(path)),
            Target::Unlisted(unsaid) => return Err(unsaid.error()),
            Target::Remote(remote) => {
                let about = about_remote(remote)?;
                (target.clone(), None, None, about)
            }
        };
        let contact = Self {
            target,
            process: process.as_ref().map(Process::seen_key),
            end: process.as_ref().and_then(watched),
            entry,
            about,
            entering: Mutex::default(),
            kept: Mutex::new(probe.into_iter().collect()),
        };
        // Had it ended before it was watched, its pid might be another's by now.
        contact.target()?;
        Ok(contact)
    }

    /// What is known of the process.
    pub fn about(&self) -> &TargetHello {
        &self.about
    }

    /// The process, as long as it lives.
    pub fn target(&self) -> Result<&Target, ClientError> {
        if self.has_ended() {
            return Err(ClientError::Ended {
                pid: self.about.pid,
            });
        }
        Ok(&self.target)
    }

    /// Whether it is known to have ended.
    pub fn has_ended(&self) -> bool {
        self.process.is_some_and(|key| !processes::is_alive(key))
    }

    /// Readable when the process has ended. Without one, ask [`Contact::has_ended`] now and then.
    pub fn end(&self) -> Option<BorrowedFd<'_>> {
        self.end.as_ref().map(OwnedFd::as_fd)
    }

    /// A connection to its probe, for one request at a time. Brings the probe in if that is allowed and needed.
    pub fn probe(&self) -> Result<Probe, ClientError> {
        let _one_at_a_time = self.entering.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(probe) = self.kept().pop() {
            if probe.is_open() {
                return Ok(probe);
            }
        }
        Ok(self.target()?.connect(&self.entry)?.probe)
    }

    /// Takes back a connection on which nothing is in flight.
    pub fn keep(&self, probe: Probe) {
        let mut kept = self.kept();
        if kept.len() < KEPT {
            kept.push(probe);
        }
    }

    /// Takes the probe out of the process.
    pub fn detach(&self) -> Result<(), ClientError> {
        self.kept().clear();
        self.target()?.connect(&Entry::Forbidden)?.probe.detach()
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Probe>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watched(process: &Process) -> Option<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(process.pid.0 as i32)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn about_remote(remote: &Remote) -> Result<TargetHello, ClientError> {
    let pid = remote.pid;
    let targets = remote.node.targets(false)?.targets.into_iter();
    let mut processes = targets.map(|target| target.process);
    let process = processes.find(|process| process.pid == pid);
    let process = process.ok_or(ClientError::Local(LocalError::NoSuchProcess { pid }))?;
    Ok(TargetHello {
        lines: LINES,
        pid,
        python: process.python,
        rank: process.rank,
        command: process.command,
        probed: process.probe == ProbeState::Running,
    })
}

fn about_process(process: &Process) -> TargetHello {
    TargetHello {
        lines: LINES,
        pid: process.pid,
        python: match &process.python {
            Some(PythonVersion::Known(major, minor)) => Some(format!("{major}.{minor}")),
            Some(PythonVersion::Unknown) | None => None,
        },
        rank: process.rank(),
        command: process.command.clone(),
        probed: false,
    }
}

fn about_hello(hello: &Hello, process: Option<&Process>) -> TargetHello {
    TargetHello {
        lines: LINES,
        pid: process.map_or(hello.pid, |process| process.pid),
        python: Some(hello.python.clone()),
        rank: hello.rank,
        command: process.map_or_else(Vec::new, |process| process.command.clone()),
        probed: true,
    }
}
