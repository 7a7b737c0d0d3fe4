//! Idle threads that wait for a while for more work, for callers that repeat a question.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// How long a thread waits.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// So many wait at most.
const MAX_IDLE_THREADS: usize = 32;

static IDLE: Mutex<IdleThreads> = Mutex::new(IdleThreads {
    waiting: Vec::new(),
    next: 0,
});

struct IdleThreads {
    /// Who was the last to have work is the first to get some.
    waiting: Vec<(u64, Sender<Work>)>,
    next: u64,
}

/// Does it on a thread that nobody waits for. An error is one of starting a thread.
pub fn run(work: Work) -> io::Result<()> {
    let waiting = idle().waiting.pop();
    match waiting {
        // Who has been taken from those that wait waits until it gets something.
        Some((_, waiting)) => drop(waiting.send(work)),
        None => drop(thread::Builder::new().spawn(move || work_on(work))?),
    }
    Ok(())
}

fn work_on(first: Work) {
    let mut work = Some(first);
    while let Some(next) = work {
        // Who asked hears nothing, and says so; the thread goes on.
        if panic::catch_unwind(AssertUnwindSafe(next)).is_err() {
            return;
        }
        work = more();
    }
}

/// Waits for more to do; `None` when there is none for long.
fn more() -> Option<Work> {
    let (number, receiver) = wait()?;
    if let Ok(work) = receiver.recv_timeout(IDLE_TIMEOUT) {
        return Some(work);
    }
    let mut idle = idle();
    let place = idle.waiting.iter().position(|(other, _)| *other == number);
    if let Some(place) = place {
        idle.waiting.remove(place);
        return None;
    }
    drop(idle);
    // Somebody has just taken it to give it something.
    receiver.recv().ok()
}

/// Takes a place among those that wait; `None` when they are enough.
fn wait() -> Option<(u64, Receiver<Work>)> {
    let (sender, receiver) = mpsc::channel();
    let mut idle = idle();
    if idle.waiting.len() >= MAX_IDLE_THREADS {
        return None;
    }
    let number = idle.next;
    idle.next += 1;
    idle.waiting.push((number, sender));
    Some((number, receiver))
}

fn idle() -> MutexGuard<'static, IdleThreads> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread::ThreadId;

    use super::*;

    #[test]
    fn all_is_done_by_few_threads() {
        let mut threads: HashSet<ThreadId> = HashSet::new();
        for round in 0..200 {
            let (sender, receiver) = mpsc::channel();
            let at_once = 1 + round % 4;
            for number in 0..at_once {
                let sender = sender.clone();
                run(Box::new(move || {
                    sender.send((number, thread::current().id())).unwrap();
                }))
                .unwrap();
            }
            drop(sender);
            let mut done: Vec<_> = receiver.iter().collect();
            done.sort_by_key(|(number, _)| *number);
            assert!(done.iter().map(|(number, _)| *number).eq(0..at_once));
            threads.extend(done.iter().map(|(_, thread)| *thread));
            // One that has just answered may not wait yet.
            while idle().waiting.len() < threads.len() {
                thread::yield_now();
            }
        }
        assert!(threads.len() <= 4, "{}", threads.len());
    }

    #[test]
    fn what_panics_takes_nobody_along() {
        run(Box::new(|| panic!("as planned"))).unwrap();
        let (sender, receiver) = mpsc::channel();
        run(Box::new(move || sender.send(7).unwrap())).unwrap();
        assert_eq!(receiver.recv(), Ok(7));
    }
}
