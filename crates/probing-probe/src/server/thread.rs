//! The probe's one thread, as a handle: started, sent away for the moment of a fork, ended.

use std::io;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use probing_proto::message::Hello;

use crate::eval::active::Evals;
use crate::process::signal_mask;
use crate::requests::outbox::Waker;
use crate::server::agent_launcher::AgentLaunch;
use crate::server::event_loop::{EventLoop, ShutdownRequest};
use crate::server::runtime_dir::Directory;

const STACK: usize = 256 << 10;

/// Handle on the running server. Keeps none of its files open: it may end by itself when a client says so.
#[derive(Debug)]
pub(crate) struct Server {
    wishes: Arc<ShutdownRequest>,
    waker: Weak<Waker>,
    thread: Mutex<Thread>,
}

#[derive(Debug)]
enum Thread {
    /// Gives back what it knows when it is sent away for a moment.
    Runs(JoinHandle<Option<EventLoop>>),
    /// Sent away for a moment.
    Paused(Box<EventLoop>),
    Gone,
}

impl Server {
    pub(crate) fn start(
        directory: Directory,
        hello: Hello,
        evals: &'static Evals,
        wanted: Option<AgentLaunch>,
    ) -> io::Result<Self> {
        let waker = Arc::new(Waker::new()?);
        let wishes = Arc::new(ShutdownRequest {
            end: AtomicBool::new(false),
            pause: AtomicBool::new(false),
        });
        let (weak, shared) = (Arc::downgrade(&waker), Arc::clone(&wishes));
        let life = EventLoop::new(directory, hello, waker, wishes, evals).wanting(wanted);
        Ok(Self {
            waker: weak,
            wishes: shared,
            thread: Mutex::new(spawn(life)?),
        })
    }

    /// Whether a client has sent the probe away.
    pub(crate) fn has_ended(&self) -> bool {
        self.wishes.end.load(Ordering::Acquire)
    }

    /// Sends the thread away until [`Server::resume`]. Clients wait meanwhile.
    pub(crate) fn pause(&self) {
        let mut thread = self.thread();
        self.wish(&self.wishes.pause);
        *thread = match mem::replace(&mut *thread, Thread::Gone) {
            Thread::Runs(thread) => match thread.join() {
                Ok(Some(life)) => Thread::Paused(Box::new(life)),
                Ok(None) | Err(_) => Thread::Gone,
            },
            other => other,
        };
        self.wishes.pause.store(false, Ordering::Release);
    }

    /// Goes on after [`Server::pause`].
    pub(crate) fn resume(&self) {
        let mut thread = self.thread();
        if let Thread::Paused(life) = mem::replace(&mut *thread, Thread::Gone) {
            match spawn(*life) {
                Ok(spawned) => *thread = spawned,
                // No thread to be had: the probe is over; its files are left to be swept.
                Err(_) => self.wishes.end.store(true, Ordering::Release),
            }
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        matches!(*self.thread(), Thread::Paused(_))
    }

    /// Ends the thread and removes its files.
    pub(crate) fn stop(&self) {
        self.wish(&self.wishes.end);
        match mem::replace(&mut *self.thread(), Thread::Gone) {
            // A panic of that thread was caught inside it.
            Thread::Runs(thread) => drop(thread.join()),
            Thread::Paused(life) => life.end(),
            Thread::Gone => {}
        }
    }

    fn wish(&self, what: &AtomicBool) {
        what.store(true, Ordering::Release);
        self.wake();
    }

    /// Has the thread look whether there is something to do.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.upgrade() {
            waker.wake();
        }
    }

    fn thread(&self) -> MutexGuard<'_, Thread> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread that goes on with `life`; every signal is blocked in it.
fn spawn(mut life: EventLoop) -> io::Result<Thread> {
    let body = move || {
        let served = panic::catch_unwind(AssertUnwindSafe(|| life.serve()));
        // After a panic there is nobody to tell: clients see the connection end.
        if served.is_ok() && life.is_only_paused() {
            return Some(life);
        }
        life.end();
        None
    };
    let thread = signal_mask::blocked(|| {
        thread::Builder::new()
            .name("probing".to_owned())
            .stack_size(STACK)
            .spawn(body)
    });
    thread.map(Thread::Runs)
}
