//! Carries out what a session asks for: connections to probes, threads, bytes to and from the editor.
//!
//! One thread runs the session and writes; every connection and the editor have a thread that reads. All tell the first through one
//! channel, in the order in which things happen.

mod link;
mod reach;

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use probing_client::{Entry, Keys, StackQuery, Target};
use probing_proto::message::{Failure, Message};

use self::link::ProbeLink;
use self::reach::Connected;
use crate::session::{AttachConfig, Effect, Input, Link, ListedThread, Session, Surroundings};

/// The session has no deadline: long, in case the clock is wrong.
const NO_DEADLINE: Duration = Duration::from_hours(1);
/// Requests of an editor come in bursts.
const READ_SIZE: usize = 64 << 10;

/// How processes are reached; the command's arguments and environment are the default for what a configuration leaves out.
#[derive(Debug, Clone)]
pub struct Reach {
    pub keys: Keys,
    pub entry: Entry,
}

/// What the main thread hears.
#[derive(Debug)]
pub(crate) enum Heard {
    Bytes(Vec<u8>),
    EditorGone,
    Connected(Vec<Connected>),
    NotConnected(Failure),
    Message {
        target: usize,
        link: Link,
        message: Box<Message>,
    },
    Closed {
        target: usize,
        reason: String,
    },
    Threads {
        target: usize,
        threads: Vec<ListedThread>,
    },
}

/// Bytes of a token.
const TOKEN_BYTES: usize = 16;

/// Serves editors that connect to a port, each with a session of its own. `on_ready` hears where, and the token without which an
/// editor may not attach: other users of the machine can connect, too.
pub fn listen(
    reach: &Reach,
    address: SocketAddr,
    on_ready: impl FnOnce(SocketAddr, &str) -> io::Result<()>,
) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let mut bytes = [0; TOKEN_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    on_ready(listener.local_addr()?, &token)?;
    let shared = Arc::new((reach.clone(), token));
    loop {
        let (stream, _) = listener.accept()?;
        let shared = Arc::clone(&shared);
        thread::Builder::new()
            .name("session".to_owned())
            .spawn(move || {
                // What goes wrong with one editor's connection ends its session only.
                serve_on_port(&shared.0, &shared.1, &stream).ok();
            })?;
    }
}

fn serve_on_port(reach: &Reach, token: &str, stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (editor, mut out) = (stream.try_clone()?, stream.try_clone()?);
    let served = run_session(reach, Some(token.to_owned()), editor, &mut out);
    stream.shutdown(std::net::Shutdown::Both)?;
    served
}

/// Serves one editor until it leaves. What it leaves set and stopped is then taken back by the probes, by the policy of each stop.
pub fn serve(
    reach: &Reach,
    editor: impl Read + Send + 'static,
    out: &mut impl Write,
) -> io::Result<()> {
    run_session(reach, None, editor, out)
}

fn run_session(
    reach: &Reach,
    token: Option<String>,
    editor: impl Read + Send + 'static,
    out: &mut impl Write,
) -> io::Result<()> {
    let (sender, heard) = mpsc::channel();
    let from_editor = sender.clone();
    thread::Builder::new()
        .name("editor".to_owned())
        .spawn(move || read_editor(editor, &from_editor))?;
    let surroundings = Surroundings {
        nonce: nonce(),
        token,
        is_readable: |path| Path::new(path).is_file(),
    };
    Driver {
        session: Session::new(surroundings, Instant::now()),
        reach: reach.clone(),
        sender,
        targets: Vec::new(),
    }
    .run(&heard, out)
}

/// No two sessions at a time have the same: process and time.
fn nonce() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    format!("{:x}_{nanos:x}", std::process::id())
}

fn read_editor(mut editor: impl Read, sender: &Sender<Heard>) {
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let heard = match editor.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => Heard::EditorGone,
            Ok(length) => Heard::Bytes(buffer[..length].to_vec()),
        };
        let is_last = matches!(heard, Heard::EditorGone);
        if sender.send(heard).is_err() || is_last {
            return;
        }
    }
}

/// A process, and both connections to its probe.
struct Attached {
    target: Target,
    control: ProbeLink,
    support: ProbeLink,
}

struct Driver {
    session: Session,
    reach: Reach,
    sender: Sender<Heard>,
    targets: Vec<Attached>,
}

impl Driver {
    fn run(mut self, heard: &Receiver<Heard>, out: &mut impl Write) -> io::Result<()> {
        loop {
            let now = Instant::now();
            let deadline = self.session.deadline();
            let patience = deadline.map_or(NO_DEADLINE, |deadline| {
                deadline.saturating_duration_since(now)
            });
            let effects = match heard.recv_timeout(patience) {
                Ok(Heard::EditorGone) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => self.handle(Input::Tick),
                Ok(heard) => self.take(heard),
            };
            for effect in effects {
                if matches!(effect, Effect::End) {
                    return Ok(());
                }
                self.carry_out(effect, out)?;
            }
        }
    }

    fn handle(&mut self, input: Input<'_>) -> Vec<Effect> {
        self.session.handle(Instant::now(), input)
    }

    fn take(&mut self, heard: Heard) -> Vec<Effect> {
        match heard {
            Heard::Bytes(bytes) => self.handle(Input::Bytes(&bytes)),
            Heard::Connected(connected) => {
                let mut reached = Vec::new();
                for (at, each) in connected.into_iter().enumerate() {
                    let control = ProbeLink::begin(each.control, at, Link::Control, &self.sender);
                    let support = ProbeLink::begin(each.support, at, Link::Support, &self.sender);
                    match (control, support) {
                        (Ok(control), Ok(support)) => self.targets.push(Attached {
                            target: each.target,
                            control,
                            support,
                        }),
                        (Err(error), _) | (_, Err(error)) => {
                            let failure =
                                Failure::new(format!("no thread can be started: {error}"));
                            return self.handle(Input::NotReached(failure));
                        }
                    }
                    reached.push(each.reached);
                }
                self.handle(Input::Reached(reached))
            }
            Heard::NotConnected(failure) => self.handle(Input::NotReached(failure)),
            Heard::Message {
                target,
                link,
                message,
            } => self.handle(Input::FromProbe {
                target,
                link,
                message,
            }),
            Heard::Closed { target, reason } => self.handle(Input::Closed { target, reason }),
            Heard::Threads { target, threads } => self.handle(Input::Threads { target, threads }),
            // Told apart above.
            Heard::EditorGone => Vec::new(),
        }
    }

    fn carry_out(&mut self, effect: Effect, out: &mut impl Write) -> io::Result<()> {
        match effect {
            Effect::Write(bytes) => {
                out.write_all(&bytes)?;
                out.flush()
            }
            Effect::Reach(config) => {
                self.reach(*config);
                Ok(())
            }
            Effect::Send {
                target,
                link,
                request,
            } => {
                if let Some(attached) = self.targets.get(target) {
                    let link = match link {
                        Link::Control => &attached.control,
                        Link::Support => &attached.support,
                    };
                    link.send(request);
                }
                Ok(())
            }
            Effect::ListThreads { target } => {
                self.list_threads(target);
                Ok(())
            }
            Effect::End => Ok(()),
        }
    }

    fn reach(&self, config: AttachConfig) {
        let (sender, reach) = (self.sender.clone(), self.reach.clone());
        thread::spawn(move || {
            let heard = match reach::connect(&reach, &config) {
                Ok(connected) => Heard::Connected(connected),
                Err(failure) => Heard::NotConnected(failure),
            };
            // Nobody is there to hear it when the editor has gone.
            sender.send(heard).ok();
        });
    }

    /// From outside: a process that is busy, or whose GIL is stuck, has threads like any other.
    fn list_threads(&self, target: usize) {
        let Some(attached) = self.targets.get(target) else {
            return;
        };
        let (sender, process) = (self.sender.clone(), attached.target.clone());
        thread::spawn(move || {
            let stacks = process.stacks(&StackQuery::default());
            let report = stacks.and_then(|mut stacks| stacks.read());
            let threads = report.map_or_else(|_| Vec::new(), |report| report.threads);
            let threads = threads
                .into_iter()
                .filter(|thread| thread.ident != 0)
                .map(|thread| ListedThread {
                    ident: thread.ident,
                    name: thread
                        .thread_name
                        .unwrap_or_else(|| format!("thread {}", thread.ident)),
                })
                .collect();
            sender.send(Heard::Threads { target, threads }).ok();
        });
    }
}
