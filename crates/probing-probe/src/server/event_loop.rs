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

use probing_proto::message::breakpoints::Step;
use probing_proto::message::{Call, Eval, Event, Failure, Hello, Message, Request, RequestId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::breakpoints::{self, Order, Stops};
use crate::eval::active::Evals;
use crate::process::credentials;
use crate::process::fork_child::ClosedInChildren;
use crate::process::read_file;
use crate::process::read_memory;
use crate::recorders;
use crate::recorders::collectives;
use crate::recorders::torch;
use crate::requests::outbox::Waker;
use crate::requests::request::{Pending, given_up};
use crate::requests::worker::{self, Job, RequestWork};
use crate::server::agent_launcher::AgentLaunch;
use crate::server::connection::{Connection, ConnectionState};
use crate::server::runtime_dir::Directory;
use crate::trace;
use crate::watchpoints::trap_handler;

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
            if let Some(stops) = breakpoints::if_any() {
                stops.tick();
            }
            trace::tick();
            recorders::tick();
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
        torch::leave_soon();
        breakpoints::leave_soon();
        trace::leave_soon();
        recorders::leave_soon();
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
        let deadline = breakpoints::if_any()
            .and_then(Stops::next_deadline)
            .map(until);
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
        let tracing = recorders::next_deadline().map(until);
        let traces = trace::next_deadline().map(until);
        let deadlines = deadline.into_iter().chain(tracing).chain(traces);
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
        connections.retain_mut(|connection| {
            let events = ready.next().unwrap_or(PollFlags::empty());
            let mut fate = ConnectionState::Open;
            if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                fate = connection
                    .read(|connection, request| handle(wishes, evals, connection, request));
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

/// Serves one request, or starts serving it.
fn handle(
    wishes: &Arc<ShutdownRequest>,
    evals: &'static Evals,
    connection: &mut Connection,
    request: Request,
) {
    let id = request.id;
    if connection.has_given_up(id) && is_done_at_once(&request.call) {
        connection.say(Some(id), Event::Failed(given_up()));
        return;
    }
    match request.call {
        Call::Eval(eval) if eval.stop.is_some() => {
            if let Err(failure) = evaluate_at_stop(evals, connection, id, eval) {
                connection.say(Some(id), Event::Failed(failure));
            }
        }
        Call::Eval(eval) => begin(evals, connection, id, Job::Eval(eval)),
        Call::Locals(asked) => begin(evals, connection, id, Job::Locals(asked)),
        Call::Memory { ranges } => connection.say_read(id, || read_memory::read(&ranges)),
        Call::File(asked) => connection.say_read(id, || read_file::read(&asked)),
        Call::Complete(wanted) => begin(evals, connection, id, Job::Complete(wanted)),
        Call::Describe(wanted) => begin(evals, connection, id, Job::Describe(wanted)),
        Call::Progress { request } => {
            let progress = connection.progress(request);
            connection.say(Some(id), Event::Progress(progress));
        }
        Call::Cancel { request } => connection.cancel(id, request),
        Call::Arm(wanted) => begin(evals, connection, id, Job::Arm(Box::new(wanted))),
        Call::Disarm { points } => begin(evals, connection, id, Job::Disarm(points)),
        Call::Record(seen) => begin(evals, connection, id, Job::Record(seen)),
        Call::GuardTraps => connection.say(Some(id), trap_handler::guard()),
        Call::Torch(asked) => begin(evals, connection, id, Job::Torch(asked)),
        Call::Source { file, first, count } => {
            begin(evals, connection, id, Job::Source(file, first, count));
        }
        Call::Trace(wanted) => begin(evals, connection, id, Job::Trace(Box::new(wanted))),
        Call::Untrace { traces } => begin(evals, connection, id, Job::Untrace(traces)),
        Call::Traces => begin(evals, connection, id, Job::Traces),
        call @ (Call::Points
        | Call::Stops
        | Call::Follow { .. }
        | Call::Drive { .. }
        | Call::Step(_)
        | Call::Release { .. }) => {
            if let Some(event) = at_stops(connection, id, call) {
                connection.say(Some(id), event);
            }
        }
        Call::Tracer(wanted) => {
            let borrowed = Arc::clone(connection.borrowed());
            begin(evals, connection, id, Job::Tracer(wanted, borrowed));
        }
        Call::Heap => begin(evals, connection, id, Job::Heap),
        Call::Detach if breakpoints::are_evaluating() => {
            if let Err(failure) = detach_later(wishes, connection, id) {
                connection.say(Some(id), Event::Failed(failure));
            }
        }
        Call::Detach => {
            connection.say(Some(id), Event::Done);
            wishes.end.store(true, Ordering::Release);
        }
    }
}

/// Whether this thread itself does what is asked: nothing else could leave it undone.
fn is_done_at_once(call: &Call) -> bool {
    matches!(
        call,
        Call::Follow { .. }
            | Call::Drive { .. }
            | Call::Step(_)
            | Call::Release { .. }
            | Call::Detach
    )
}

/// Ends the probe when no thread is inside of an expression of ours any more, or says that one is. This thread must not
/// wait for that: it is the one that interrupts them. Until then the client may give it up.
fn detach_later(
    wishes: &Arc<ShutdownRequest>,
    connection: &mut Connection,
    id: RequestId,
) -> Result<(), Failure> {
    let (sink, _) = connection.begin(id, None)?;
    let wishes = Arc::clone(wishes);
    let interrupt = Arc::clone(&sink.interrupt);
    let detach = move || {
        let pending = Pending::of_client(&sink.interrupt);
        let left = breakpoints::interrupt_expressions(|| pending.check().is_ok());
        let detached = pending.commit().and_then(|()| {
            // Others may have begun one meanwhile; from now on none does.
            let left = left.and_then(|()| breakpoints::leave_expressions());
            wishes.end.store(true, Ordering::Release);
            left
        });
        sink.interrupt.end();
        // Wakes the probe's thread, which sends it before it ends.
        sink.outbox.push(Message {
            id: Some(sink.id),
            event: detached.map_or_else(Event::Failed, |()| Event::Done),
        });
    };
    worker::start(detach).map_err(|error| {
        interrupt.end();
        Failure::new(format!("cannot start a thread in the target: {error}"))
    })
}

/// What is asked of stopped threads; the answer, unless somebody else gives it.
fn at_stops(connection: &mut Connection, id: RequestId, call: Call) -> Option<Event> {
    let stops = breakpoints::of_this_process();
    let outbox = &Arc::clone(connection.outbox());
    let done = |result: Result<(), Failure>| match result {
        Ok(()) => Event::Done,
        Err(failure) => Event::Failed(failure),
    };
    match call {
        Call::Points => Some(stops.points_told()),
        Call::Stops => Some(stops.told(outbox)),
        Call::Follow { driving } => {
            stops.follow(outbox, id, driving);
            None
        }
        Call::Drive { stop, take } => Some(done(stops.drive(outbox, stop, take))),
        Call::Step(asked) => {
            if let Step::Jump { line } = asked.step {
                let (sink, _) = match connection.begin(id, None) {
                    Ok(begun) => begun,
                    Err(failure) => return Some(Event::Failed(failure)),
                };
                let jump = Order::Jump { line, sink };
                if let Err((jump, failure)) = stops.order(outbox, asked.stop, jump) {
                    jump.refuse(failure);
                }
                return None;
            }
            let ordered = stops.order(outbox, asked.stop, Order::Step(asked));
            Some(done(ordered.map_err(|(_, failure)| failure)))
        }
        Call::Release { stops: wanted } => {
            let released = stops.release(outbox, &wanted);
            Some(released.unwrap_or_else(Event::Failed))
        }
        _ => None,
    }
}

/// Has a stopped thread run code.
fn evaluate_at_stop(
    evals: &'static Evals,
    connection: &mut Connection,
    id: RequestId,
    eval: Eval,
) -> Result<(), Failure> {
    let Some(stop) = eval.stop else {
        return Ok(());
    };
    let (sink, held) = connection.begin(id, eval.max_output)?;
    let job = Job::Eval(eval);
    evals.enter(&sink.interrupt);
    let order = Order::Eval(Box::new(RequestWork { job, sink, held }));
    let ordered = breakpoints::of_this_process().order(connection.outbox(), stop, order);
    if let Err((order, failure)) = ordered {
        order.refuse(failure);
    }
    Ok(())
}

/// Starts what needs the interpreter on a thread of its own.
fn begin(evals: &'static Evals, connection: &mut Connection, id: RequestId, job: Job) {
    let max_output = match &job {
        Job::Eval(eval) => eval.max_output,
        _ => None,
    };
    let started = connection.begin(id, max_output).and_then(|(sink, held)| {
        worker::spawn(evals, RequestWork { job, sink, held })
            .map_err(|error| Failure::new(format!("cannot start a thread in the target: {error}")))
    });
    if let Err(failure) = started {
        connection.say(Some(id), Event::Failed(failure));
    }
}
