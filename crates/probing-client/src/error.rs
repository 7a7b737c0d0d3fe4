//! What can go wrong between a command and a target, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use probing_attach::AttachError;
use probing_capture::{Capture, CaptureError};
use probing_process::error::ProcessError;
use probing_proto::agent::{Refusal, RefusalKind};
use probing_proto::message::threads::ThreadSelector;
use probing_proto::message::{Failure, PROTOCOL};
use probing_proto::paths::NotPrivate;
use probing_proto::process::Pid;
use probing_proto::wire::WireError;
use probing_stacks::StackError;
use probing_watchpoint::{NotBytes, WatchpointError};

use crate::storage::core_file::CoreFileInfo;
use crate::targets::labels::Group;
use crate::targets::ranks::Ranks;

/// Why a target could not be reached or did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no such process: {pid}")]
    NoSuchProcess { pid: Pid },
    #[error("process has ended; only its parent has not noticed yet: {pid}")]
    Zombie { pid: Pid },
    #[error("process has ended; its probe left a folder behind: {}", folder.display())]
    LeftFolder { pid: Pid, folder: PathBuf },
    #[error("a core file of {left}, not a process: {}", path.display())]
    CoreFile { path: PathBuf, left: CoreFileInfo },
    #[error("not a Python process: {pid} ({command})")]
    NotPython { pid: Pid, command: String },
    #[error("process belongs to another user (uid {uid}): {pid}")]
    OtherUser { pid: Pid, uid: u32 },
    #[error("no probe in process: {pid}")]
    NoProbe { pid: Pid },
    #[error("the probe of process {pid} is gone, only its socket is left: {socket}")]
    DeadSocket { pid: Pid, socket: PathBuf },
    #[error("nobody listens at socket: {socket}")]
    NobodyListens { socket: PathBuf },
    #[error("the socket leads to another process: {why}: {}", socket.display())]
    OtherProbe { socket: PathBuf, why: String },
    #[error(transparent)]
    NotPrivate(#[from] NotPrivate),
    #[error("process is stopped by a signal and cannot answer: {pid}")]
    Stopped { pid: Pid },
    #[error("no answer from the probe within {patience:?}")]
    Silent { patience: Duration },
    /// The probe is there, and has dropped the request.
    #[error("no answer from the probe within {patience:?}: cancelled, and nothing was changed")]
    GivenUp { patience: Duration },
    /// It had taken effect, or was about to, when it was cancelled.
    #[error("no answer from the probe within {patience:?}, though it had begun")]
    Unfinished { patience: Duration },
    #[error("cannot connect to {socket}: {source}")]
    NotConnected {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the connection to the target broke: {source}")]
    Broken {
        #[source]
        source: io::Error,
    },
    #[error("the target ended, or its probe was taken out, before it answered")]
    Gone,
    #[error("the target has ended: {pid}")]
    Ended { pid: Pid },
    #[error("{}", .0.error)]
    Refused(Failure),
    /// The probe was reached and could not do it.
    #[error("{}", .0.error)]
    NotDone(Failure),
    #[error("the probe speaks protocol {theirs}, this command speaks {PROTOCOL}")]
    OtherProtocol { theirs: u32 },
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("no thread is called {wanted}; there are: {}", .threads.join(", "))]
    NoThread {
        wanted: ThreadSelector,
        /// Names and ids of those that there are.
        threads: Vec<String>,
    },
    #[error("the main thread runs no Python now")]
    NoMainThread,
    #[error("no Python process is named: {name}")]
    NoneNamed { name: String },
    #[error("{} Python processes are named {name}:{}", .matches.len(), listed(.matches))]
    SeveralNamed {
        name: String,
        matches: Vec<(Pid, String)>,
    },
    /// A command that is for one target was given several.
    #[error("this command takes one target, and these are {}: {group}", .group.count())]
    OnlyOne { group: Group },
    /// Code would run on several targets, and nobody said that it should.
    #[error("this would run on {} targets: {group}", .group.count())]
    NotExplicit { group: Group },
    #[error("{}", nobody(.ranks))]
    NobodyChosen { ranks: Ranks },
    /// Nothing is left of those that have failed.
    #[error("no process here has these ranks, and they left no rows: {ranks}")]
    NothingLeft { ranks: Ranks },
    /// Nobody is missing, as far as can be told.
    #[error("no rank has failed")]
    NoneFailed,
    #[error("no answer within {patience:?}")]
    TooLong { patience: Duration },
    #[error("the client hung up before the code began")]
    HungUp,
    #[error("the Python package `probing` was not found beside this command")]
    NoPackage,
    #[error("cannot read the Python package: {source}")]
    PackageUnreadable {
        #[source]
        source: io::Error,
    },
    #[error("cannot bring the probe into the target's folder {place}: {source}")]
    NotCopied {
        place: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Attach(AttachError),
    /// Python cannot run in the process, and this is why.
    #[error("{error}; {holder}")]
    GilHeld { error: AttachError, holder: String },
    #[error(transparent)]
    Stacks(#[from] StackError),
    #[error(transparent)]
    NotBytes(#[from] NotBytes),
    #[error(transparent)]
    Watchpoint(#[from] WatchpointError),
    #[error("bytes of memory are watched on the machine of their process: {target}")]
    WatchedThere { target: String },
    /// What was to be watched has no place, and this is why.
    #[error("{why}")]
    NoStorage { why: String },
    /// It may not be read from outside, and its probe cannot be asked.
    #[error("{refusal}; and its probe cannot be asked: {probe}")]
    NeitherWay {
        refusal: StackError,
        probe: Box<ClientError>,
    },
    #[error("the process behind this socket cannot be seen from here: {}", socket.display())]
    Unseen { socket: PathBuf },
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("a capture of process {pid}, which can be looked at and not asked: {}", path.display())]
    OnlyKept { pid: Pid, path: PathBuf },
    /// It is on a machine where we are not, and this cannot be asked of its agent.
    #[error("only its own machine can tell: {target}")]
    Elsewhere { target: String },
    /// What an agent did instead of saying who is there.
    #[error("{why}")]
    UnlistedAgent { why: String },
    #[error("cannot reach an agent at {endpoint}")]
    NoAgent {
        endpoint: String,
        #[source]
        source: io::Error,
    },
    #[error("the connection to the agent at {endpoint} broke")]
    AgentGone {
        endpoint: String,
        #[source]
        source: io::Error,
    },
    #[error("no agent answers at {endpoint}: {what}")]
    NotAnAgent { endpoint: String, what: String },
    #[error("no token for the agent at {endpoint}")]
    NoToken { endpoint: String },
    #[error("the agent at {endpoint} does not let this address in")]
    AddressRefused { endpoint: String },
    #[error("whoever answers at {endpoint} does not speak TLS")]
    NotTls { endpoint: String },
    #[error("the agent at {endpoint} shows another certificate than expected: {seen}")]
    OtherCertificate {
        endpoint: String,
        seen: String,
        expected: String,
        /// The file that remembers the other.
        remembered: Option<PathBuf>,
    },
    /// No earlier command has met it, and nobody says that it can be trusted. The token was not used.
    #[error(
        "certificate not trusted: first contact with the agent at {endpoint}, which shows {seen}"
    )]
    NewAgent { endpoint: String, seen: String },
    /// Someone else listens on a loopback address, and would read the token.
    #[error("plain text refused: the listener at {endpoint} {}", listener_of(*uid))]
    ForeignListener { endpoint: String, uid: Option<u32> },
    #[error("no agent could be started over {endpoint}: {source}")]
    NotOverSsh {
        endpoint: String,
        #[source]
        source: io::Error,
    },
    #[error("nobody vouches for the agent at {endpoint}: {why}")]
    NotVouchedFor {
        endpoint: String,
        why: String,
        ca: PathBuf,
    },
    #[error("cannot use the certificates in {}: {why}", ca.display())]
    NoCa { ca: PathBuf, why: String },
    /// The agent was reached, and refused or failed.
    #[error("{}", .refusal.failure.error)]
    Agent {
        endpoint: String,
        status: u16,
        refusal: Refusal,
    },
}

impl ClientError {
    /// For what needs a process that lives.
    pub(crate) fn only_kept(path: &Path) -> Self {
        match Capture::open(path) {
            Ok(capture) => Self::OnlyKept {
                pid: capture.manifest().pid,
                path: path.to_owned(),
            },
            Err(error) => error.into(),
        }
    }

    /// Whether it is that the target does not live any more.
    pub fn is_end(&self) -> bool {
        matches!(
            self,
            Self::NoSuchProcess { .. }
                | Self::Zombie { .. }
                | Self::LeftFolder { .. }
                | Self::Gone
                | Self::Watchpoint(WatchpointError::Ended { .. })
                | Self::Stacks(StackError::Process(
                    ProcessError::Ended { .. } | ProcessError::NoSuchProcess { .. }
                ))
                | Self::Agent {
                    refusal: Refusal {
                        kind: Some(RefusalKind::Ended),
                        ..
                    },
                    ..
                }
        )
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::CoreFile { path, .. } => {
                let path = path.display();
                format!(
                    "this version reads living processes only; for Python stacks use `pystack core {path}`, \
                     for native ones `gdb -c {path}`"
                )
            }
            Self::Zombie { .. } => "what has ended has no stacks any more".to_owned(),
            Self::LeftFolder { .. } => {
                "it was killed, or ended without ado; `probing list` sweeps what the dead left".to_owned()
            }
            Self::NoSuchProcess { .. } | Self::NoneNamed { .. } | Self::NotPython { .. } => {
                "`probing list` shows the processes that can be looked at".to_owned()
            }
            Self::OtherUser { .. } => "run `probing` as that user, or as root".to_owned(),
            Self::NoProbe { .. } => {
                "`probing -t PID attach` brings one in; or start the program with PROBING=1 or `probing run -- …`"
                    .to_owned()
            }
            Self::DeadSocket { .. } => {
                "the process has become another program since; `probing list` sweeps what the dead left".to_owned()
            }
            Self::OtherProbe { .. } => {
                "nothing was sent; remove what stands there, or set PROBING_DIR to a folder of your own for the target".to_owned()
            }
            Self::NobodyListens { .. } => "`probing list` shows who does".to_owned(),
            Self::NotPrivate(error) => error.hint(),
            Self::Stopped { pid } => format!("let it go on with: kill -CONT {pid}"),
            Self::Silent { .. } => WHETHER_STOPPED.to_owned(),
            Self::GivenUp { .. } => TRY_AGAIN.to_owned(),
            Self::Unfinished { .. } => WHAT_IS_ON.to_owned(),
            Self::Refused(failure) | Self::NotDone(failure) => return failure.hint.clone(),
            Self::OtherProtocol { .. } => OTHER_VERSION.to_owned(),
            Self::SeveralNamed { .. } => "name one of them by pid: -t PID; or choose by rank: --ranks 0,2-5; several pids make a set: -t PID,PID".to_owned(),
            Self::OnlyOne { .. } => "name one of them by pid: -t PID; or by rank: --ranks N; to debug whichever comes to a place first, set the \
                 breakpoint in all of them (`break PLACE`): `stops` names the one"
                .to_owned(),
            Self::NotExplicit { .. } => "add --all to run it on every one of them, or choose with --ranks 0,2-5".to_owned(),
            Self::TooLong { .. } => "the process may be stuck in the kernel: state D in `ps`".to_owned(),
            Self::NobodyChosen { .. } | Self::NoneFailed => WHO_IS_THERE.to_owned(),
            Self::NothingLeft { .. } => {
                "they have ended, or run on another machine: name that, too, with -t HOST:PORT. Of those that are started with \
                 PROBING=1 what they recorded stays; `--ranks all backtrace` shows where the others are"
                    .to_owned()
            }
            Self::NoMainThread => "`probing backtrace --all` shows the other threads".to_owned(),
            Self::NoPackage => {
                "install it with `pip install .` in a checkout of Probing, or set PROBING_PACKAGE to the folder that contains it".to_owned()
            }
            Self::Attach(error) | Self::GilHeld { error, .. } => return error.hint(),
            Self::Stacks(error) => return error.hint(),
            Self::NotBytes(error) => return error.hint(),
            Self::Watchpoint(error) => return error.hint(),
            Self::WatchedThere { .. } => "run `probing watch` there, for instance over ssh".to_owned(),
            Self::NoStorage { .. } => {
                "a tensor or an array, as in model.fc1.weight, weight[3, 5], memoryview(data)[8:]; any bytes: --addr".to_owned()
            }
            Self::NeitherWay { refusal, probe } => return probe.hint().or_else(|| refusal.hint()),
            Self::Unseen { .. } => "it runs in another container: run `probing` in there, or on the host".to_owned(),
            Self::Capture(error) => return error.hint().map(str::to_owned),
            Self::OnlyKept { path, .. } => {
                let path = path.display();
                format!("what it holds is shown by: probing -t {path} backtrace --all --locals; probing -t {path} query")
            }
            Self::Elsewhere { .. }
            | Self::NoAgent { .. }
            | Self::UnlistedAgent { .. }
            | Self::NotAnAgent { .. }
            | Self::NoToken { .. }
            | Self::AddressRefused { .. }
            | Self::NotTls { .. }
            | Self::NewAgent { .. }
            | Self::ForeignListener { .. }
            | Self::NotOverSsh { .. }
            | Self::NotVouchedFor { .. }
            | Self::NoCa { .. }
            | Self::OtherCertificate { .. } => return self.agent_hint(),
            Self::Agent { refusal, .. } => return refusal.failure.hint.clone(),
            Self::NotCopied { .. } => {
                "the target must see a writable folder: start it with PROBING_DIR set to one".to_owned()
            }
            Self::PackageUnreadable { .. } | Self::NotConnected { .. } | Self::Broken { .. } | Self::Gone | Self::HungUp | Self::NoThread { .. } | Self::Ended { .. } | Self::Wire(_) | Self::AgentGone { .. } => return None,
        };
        Some(hint)
    }

    /// What to do about an agent that cannot be reached.
    fn agent_hint(&self) -> Option<String> {
        let hint = match self {
            Self::Elsewhere { .. } => "ask the targets of one node at a time: -t HOST:PORT".to_owned(),
            Self::NoAgent { .. } | Self::UnlistedAgent { .. } => {
                "start it there with `probing agent --listen`, or the program with PROBING_PORT; is the port open?".to_owned()
            }
            Self::NotAnAgent { .. } => "is it the port of `probing agent`, of this version?".to_owned(),
            _ => return self.trust_hint(),
        };
        Some(hint)
    }

    /// What to do when an agent and a command do not trust each other.
    fn trust_hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoToken { .. } => {
                "set PROBING_TOKEN; the agent made it in the file that it printed, agents/token in its private folder".to_owned()
            }
            Self::AddressRefused { .. } => "it was started with --allow or PROBING_ALLOW, and this address is in none of those ranges".to_owned(),
            Self::NotTls { .. } => {
                "an agent on a loopback address speaks plain text: with PROBING_TLS=off so does this command, to such an address only"
                    .to_owned()
            }
            Self::NewAgent { seen, .. } => format!(
                "compare it with what the agent printed, then add --fingerprint {seen}; or trust it unseen with --accept-new, or those \
                 whom an authority vouches for with --ca FILE"
            ),
            Self::ForeignListener { .. } => {
                "PROBING_TLS=off is for listeners of this user or of root; start the agent with --tls CERT,KEY to be sure of it".to_owned()
            }
            Self::NotOverSsh { .. } => {
                "SSH must let you in, and `probing` must be on the PATH there: try `ssh USER@HOST probing --version`".to_owned()
            }
            Self::NotVouchedFor { ca, .. } => format!(
                "none of those in {} has signed its certificate for this name; without --ca and PROBING_CA it is remembered when it is \
                 first met",
                ca.display()
            ),
            Self::NoCa { .. } => "a PEM file with one certificate or more: --ca FILE".to_owned(),
            Self::OtherCertificate { expected, remembered, .. } => {
                match remembered {
                    Some(file) => format!(
                        "expected was {expected}: someone may be in between. If the agent has a new certificate, remove its line \
                         from {}, or name it with --fingerprint",
                        file.display()
                    ),
                    None => format!("expected was {expected}: someone may be in between"),
                }
            }
            _ => return None,
        };
        Some(hint)
    }
}

fn listed(matches: &[(Pid, String)]) -> String {
    matches
        .iter()
        .map(|(pid, command)| format!("\n  {pid}  {command}"))
        .collect()
}

const WHETHER_STOPPED: &str = "`probing list` tells whether the process is stopped; try again";
const TRY_AGAIN: &str = "a thread holds the GIL, or the machine is busy: `probing -t PID backtrace --all` shows where; try again";
const OTHER_VERSION: &str =
    "use the `probing` command of the version that the target was started with";
const WHAT_IS_ON: &str =
    "`probing -t PID breakpoints`, `trace --list` and `torch status` tell what is on";
const WHO_IS_THERE: &str = "`probing list` shows the processes that can be looked at, and their ranks; `probing list --dead` \
     those that have ended and left rows, which -t PID asks";

fn listener_of(uid: Option<u32>) -> String {
    match uid {
        Some(uid) => format!("belongs to uid {uid}"),
        None => "does not accept connections".to_owned(),
    }
}

fn nobody(ranks: &Ranks) -> String {
    if ranks.is_empty() {
        "no Python process of this user can be seen from here".to_owned()
    } else {
        format!("no target has one of these ranks: {ranks}")
    }
}
