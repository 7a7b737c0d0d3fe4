//! The probe's one thread: waits on the socket, reads requests, sends answers. It never touches the interpreter.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use probing_proto::message::{Call, Event, Failure, Hello, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::connection::{Connection, Fate};
use crate::directory::Directory;
use crate::evals::Evals;
use crate::forked::ClosedInChildren;
use crate::outbox::Waker;
use crate::peer;
use crate::signals;
use crate::worker;

const ROOT: u32 = 0;
/// Clients served at once.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// How long to do nothing when the process has no memory or no file numbers left.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the end of the probe may wait for clients to take their last answers.
const FAREWELL: Duration = Duration::from_millis(200);
const STACK: usize = 256 << 10;

/// Handle on the running server. Keeps none of its files open: it may end by itself when a client says so.
#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<Shared>,
    waker: Weak<Waker>,
    thread: JoinHandle<()>,
}

/// What the server's thread and the others both see.
#[derive(Debug)]
struct Shared {
    ending: AtomicBool,
    evals: &'static Evals,
}

impl Server {
    pub(crate) fn start(
        directory: Directory,
        hello: Hello,
        evals: &'static Evals,
    ) -> io::Result<Self> {
        let waker = Arc::new(Waker::new()?);
        let weak_waker = Arc::downgrade(&waker);
        let shared = Arc::new(Shared {
            ending: AtomicBool::new(false),
            evals,
        });
        let thread = signals::blocked(|| {
            let mut life = Life {
                _closed_in_children: [
                    ClosedInChildren::new(directory.listener().as_fd()),
                    ClosedInChildren::new(waker.as_fd()),
                ],
                shared: Arc::clone(&shared),
                waker,
                connections: Vec::new(),
                accept_again: None,
                hello,
            };
            thread::Builder::new()
                .name("probing".to_owned())
                .stack_size(STACK)
                .spawn(move || {
                    let served = panic::catch_unwind(AssertUnwindSafe(|| life.serve(&directory)));
                    // After a panic there is nobody to tell: clients see the connection end.
                    drop(served);
                    life.shared.ending.store(true, Ordering::Release);
                    // In this order: a client that sees its connection end finds no files any more, and children of
                    // the program forget the numbers before they are closed.
                    directory.remove();
                    drop(life);
                    drop(directory);
                })
        })?;
        Ok(Self {
            shared,
            waker: weak_waker,
            thread,
        })
    }

    /// Whether a client has sent the probe away.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.ending.load(Ordering::Acquire)
    }

    /// Ends the thread and removes its files.
    pub(crate) fn stop(self) {
        self.shared.ending.store(true, Ordering::Release);
        if let Some(waker) = self.waker.upgrade() {
            waker.wake();
        }
        // A panic of that thread was caught inside it.
        drop(self.thread.join());
    }
}

/// The server's thread, while it lives.
struct Life {
    _closed_in_children: [ClosedInChildren; 2],
    shared: Arc<Shared>,
    waker: Arc<Waker>,
    connections: Vec<Connection>,
    /// Set while new clients have to wait.
    accept_again: Option<Instant>,
    hello: Hello,
}

impl Life {
    fn serve(&mut self, directory: &Directory) {
        while !self.shared.ending.load(Ordering::Acquire) {
            let ready = self.wait(directory);
            self.waker.reset();
            self.turn(&ready.connections);
            if ready.listener {
                self.accept(directory);
            }
        }
        self.say_farewell();
    }

    /// Sleeps until something happens.
    fn wait(&mut self, directory: &Directory) -> Ready {
        let now = Instant::now();
        let pause = self
            .accept_again
            .map(|again| again.saturating_duration_since(now))
            .filter(|pause| !pause.is_zero());
        if pause.is_none() {
            self.accept_again = None;
        }
        let listen = if pause.is_none() {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut files = vec![
            PollFd::new(&*self.waker, PollFlags::IN),
            PollFd::new(directory.listener(), listen),
        ];
        files.extend(self.connections.iter().map(|connection| {
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, connection.is_heard());
            events.set(PollFlags::OUT, connection.has_more_to_say());
            PollFd::from_borrowed_fd(connection.as_fd(), events)
        }));
        let timeout = pause.map(|pause| Timespec {
            tv_sec: pause.as_secs() as i64,
            tv_nsec: i64::from(pause.subsec_nanos()),
        });
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Out of memory, or more files than the process may have now: asking at once again would burn its CPU.
            Err(_) => thread::sleep(PAUSE),
        }
        let mut events = files[1..].iter().map(PollFd::revents);
        Ready {
            listener: events
                .next()
                .is_some_and(|events| events.contains(PollFlags::IN)),
            connections: events.collect(),
        }
    }

    /// Reads from and writes to the clients that are ready, and drops those that are gone.
    fn turn(&mut self, ready: &[PollFlags]) {
        let mut ready = ready.iter().copied();
        let Self {
            connections,
            shared,
            ..
        } = self;
        connections.retain_mut(|connection| {
            let events = ready.next().unwrap_or(PollFlags::empty());
            let mut fate = Fate::Open;
            if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                fate = connection.read(|connection, request| handle(shared, connection, request));
            }
            if fate == Fate::Open && connection.has_more_to_say() {
                fate = connection.write();
            }
            fate == Fate::Open
        });
    }

    fn accept(&mut self, directory: &Directory) {
        match directory.listener().accept() {
            Ok((stream, _)) => {
                if let Ok(connection) = self.welcome(stream) {
                    self.connections.extend(connection);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // No file numbers left: the socket stays ready, and asking again at once would burn the target's CPU.
            Err(_) => self.accept_again = Some(Instant::now() + PAUSE),
        }
    }

    /// Lets the same user and root in, as many as there is room for.
    fn welcome(&self, stream: UnixStream) -> io::Result<Option<Connection>> {
        let peer = peer::uid_of(&stream)?;
        let own = rustix::process::geteuid().as_raw();
        let mut connection = Connection::new(stream, Arc::clone(&self.waker))?;
        let refusal = if peer != own && peer != ROOT {
            Failure::new(format!("not permitted for uid {peer}")).with_hint(format!(
                "run `probing` as uid {own}, who owns the process, or as root"
            ))
        } else if self.connections.len() == MAX_CONNECTIONS {
            Failure::new(format!(
                "the probe serves {MAX_CONNECTIONS} clients already"
            ))
            .with_hint("end one of them and try again")
        } else {
            connection.say(None, Event::Hello(self.hello.clone()));
            return Ok((connection.write() == Fate::Open).then_some(connection));
        };
        connection.say(None, Event::Failed(refusal));
        connection.write();
        Ok(None)
    }

    /// Gives clients that still read a moment to take their last answers.
    fn say_farewell(&mut self) {
        let until = Instant::now() + FAREWELL;
        self.connections.retain_mut(|connection| {
            while connection.has_more_to_say() && Instant::now() < until {
                if connection.write() == Fate::Over {
                    break;
                }
                let tick = Timespec {
                    tv_sec: 0,
                    tv_nsec: 10_000_000,
                };
                let file = PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::OUT);
                poll(&mut [file], Some(&tick)).ok();
            }
            false
        });
    }
}

/// What a wait ended with.
struct Ready {
    listener: bool,
    connections: Vec<PollFlags>,
}

/// Serves one request, or starts serving it.
fn handle(shared: &Arc<Shared>, connection: &mut Connection, request: Request) {
    let id = request.id;
    match request.call {
        Call::Eval { code } => {
            let started = connection.begin(id).and_then(|sink| {
                worker::spawn(shared.evals, sink, code).map_err(|error| {
                    Failure::new(format!("cannot start a thread in the target: {error}"))
                })
            });
            if let Err(failure) = started {
                connection.say(Some(id), Event::Failed(failure));
            }
        }
        Call::Cancel { request } => {
            let event = connection.cancel(request);
            connection.say(Some(id), event);
        }
        Call::Detach => {
            connection.say(Some(id), Event::Done);
            shared.ending.store(true, Ordering::Release);
        }
    }
}
