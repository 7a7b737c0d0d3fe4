//! The event loop of the probe's thread: waits on the socket, reads requests, sends answers.
//!
//! It never touches the interpreter.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use probing_proto::message::{Event, Failure, Hello, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::breakpoints::{self, Stops};
use crate::eval::active::Evals;
use crate::process::credentials;
use crate::process::fork_child::ClosedInChildren;
use crate::recorders::collectives;
use crate::requests::outbox::Waker;
use crate::server::agent_launcher::AgentLaunch;
use crate::server::calls::{self, CallContext};
use crate::server::connection::{Connection, ConnectionState};
use crate::server::runtime_dir::Directory;
use crate::server::subsystems::SUBSYSTEMS;

const ROOT: u32 = 0;
/// Clients served at once.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// How long to do nothing when the process has no memory or no file numbers left.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long the end of the probe may wait for clients to take their last answers.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// What the others may want of the thread.
#[derive(Debug)]
pub(crate) struct ShutdownRequest {
    /// That it ends, for good. A client may wish that, too.
    pub(crate) end: AtomicBool,
    /// That it goes away for a moment.
    pub(crate) pause: AtomicBool,
}

/// All that the thread knows; another thread can go on with it.
#[derive(Debug)]
pub(crate) struct EventLoop {
    // Before the files: the numbers are forgotten before they are closed.
    _closed_in_children: [ClosedInChildren; 2],
    wishes: Arc<ShutdownRequest>,
    evals: &'static Evals,
    waker: Arc<Waker>,
    connections: Vec<Connection>,
    /// Set while new clients have to wait.
    accept_again: Option<Instant>,
    hello: Hello,
    directory: Directory,
    /// To be started, by this thread: nobody waits for it.
    wanted: Option<AgentLaunch>,
}

impl EventLoop {
    pub(crate) fn new(
        directory: Directory,
        hello: Hello,
        waker: Arc<Waker>,
        wishes: Arc<ShutdownRequest>,
        evals: &'static Evals,
    ) -> Self {
        Self {
            _closed_in_children: [
                ClosedInChildren::new(directory.listener().as_fd()),
                ClosedInChildren::new(waker.as_fd()),
            ],
            wishes,
            evals,
            waker,
            connections: Vec::new(),
            accept_again: None,
            hello,
            directory,
            wanted: None,
        }
    }

    /// With an agent to be started.
    pub(crate) fn wanting(mut self, wanted: Option<AgentLaunch>) -> Self {
        self.wanted = wanted;
        self
    }

    /// Serves clients until someone wishes otherwise.
    pub(crate) fn serve(&mut self) {
        if let Some(wanted) = self.wanted.take() {
            wanted.start();
        }
        let waker = Arc::downgrade(&self.waker);
        breakpoints::of_this_process().wake_with(Box::new(move || {
            if let Some(waker) = waker.upgrade() {
                waker.wake();
            }
        }));
        let wished = |wish: &AtomicBool| wish.load(Ordering::Acquire);
        while !wished(&self.wishes.end) && !wished(&self.wishes.pause) {
            let ready = self.wait();
            self.waker.reset();
            self.turn(&ready.connections);
            SUBSYSTEMS.iter().for_each(|it| it.tick());
            if ready.listener {
                self.accept();
            }
        }
    }

    pub(crate) fn is_only_paused(&self) -> bool {
        !self.wishes.end.load(Ordering::Acquire) && self.wishes.pause.load(Ordering::Acquire)
    }

    /// Gives clients that still read their last answers, and removes the files.
    pub(crate) fn end(mut self) {
        self.wishes.end.store(true, Ordering::Release);
        SUBSYSTEMS.iter().for_each(|it| it.leave_soon());
        self.say_farewell();
        // Before the connections end: a client that sees that finds no files any more.
        self.directory.remove();
    }

    /// Sleeps until something happens.
    fn wait(&mut self) -> Ready {
        let now = Instant::now();
        let until = |moment: Instant| moment.saturating_duration_since(now);
        let pause = self
            .accept_again
            .map(until)
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
            PollFd::new(self.directory.listener(), listen),
        ];
        files.extend(self.connections.iter().map(|connection| {
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, connection.is_heard());
            events.set(PollFlags::OUT, connection.has_more_to_say());
            PollFd::from_borrowed_fd(connection.as_fd(), events)
        }));
        let deadlines = SUBSYSTEMS.iter().filter_map(|it| it.next_deadline());
        let deadlines = deadlines.map(until);
        let timeout = pause.into_iter().chain(deadlines).min();
        let timeout = timeout.map(|pause| Timespec {
            tv_sec: pause.as_secs() as i64,
            tv_nsec: i64::from(pause.subsec_nanos()),
        });
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Out of memory, or more files than the process may have now: asking at once again would burn its CPU.
            Err(_) => thread::sleep(ACCEPT_RETRY_INTERVAL),
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
            wishes,
            evals,
            ..
        } = self;
        let (shutdown, evals): (&Arc<ShutdownRequest>, &'static Evals) = (wishes, evals);
        connections.retain_mut(|connection| {
            let events = ready.next().unwrap_or(PollFlags::empty());
            let mut fate = ConnectionState::Open;
            if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                fate = connection.read(|connection, Request { id, call }| {
                    let context = CallContext {
                        shutdown,
                        evals,
                        connection,
                        id,
                    };
                    calls::handle(context, call);
                });
            }
            if fate == ConnectionState::Open && connection.has_more_to_say() {
                fate = connection.write();
            }
            fate == ConnectionState::Open
        });
    }

    fn accept(&mut self) {
        match self.directory.listener().accept() {
            Ok((stream, _)) => {
                if let Ok(connection) = self.welcome(stream) {
                    self.connections.extend(connection);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // No file numbers left: the socket stays ready, and asking again at once would burn the target's CPU.
            Err(_) => self.accept_again = Some(Instant::now() + ACCEPT_RETRY_INTERVAL),
        }
    }

    /// Lets the same user and root in, as many as there is room for.
    fn welcome(&self, stream: UnixStream) -> io::Result<Option<Connection>> {
        let peer = credentials::uid_of(&stream)?;
        let own = rustix::process::geteuid().as_raw();
        let mut connection = Connection::new(stream, Arc::clone(&self.waker))?;
        let refusal = if peer != own && peer != ROOT {
            Failure::new(format!("not permitted for uid {peer}")).with_hint(format!(
                "run `probing` as uid {own}, who owns the process, or as root"
            ))
        } else if self.connections.len() == MAX_CONNECTIONS {
            Failure::new(format!("the probe has {MAX_CONNECTIONS} clients already"))
                .with_hint("end one of them and try again")
        } else {
            let stops = breakpoints::if_any().map_or(0, Stops::count);
            let hello = self.hello.clone();
            let rank = hello.rank.or_else(collectives::rank_in_torch);
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            let hello = Hello {
                stops,
                rank,
                thread: Some(own.cast_unsigned()),
                ..hello
            };
            connection.say(None, Event::Hello(hello));
            return Ok((connection.write() == ConnectionState::Open).then_some(connection));
        };
        connection.say(None, Event::Failed(refusal));
        connection.write();
        Ok(None)
    }

    /// Gives clients that still read a moment to take their last answers.
    fn say_farewell(&mut self) {
        let until = Instant::now() + DRAIN_TIMEOUT;
        for connection in &mut self.connections {
            while connection.has_more_to_say() && Instant::now() < until {
                if connection.write() == ConnectionState::Over {
                    break;
                }
                let tick = Timespec {
                    tv_sec: 0,
                    tv_nsec: 10_000_000,
                };
                let file = PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::OUT);
                poll(&mut [file], Some(&tick)).ok();
            }
        }
    }
}

/// What a wait ended with.
struct Ready {
    listener: bool,
    connections: Vec<PollFlags>,
}
