//! Fan-out of one question to many targets, each with its own deadline.
//!
//! One that never answers makes nobody wait longer than its own deadline.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::parallel::thread_pool;

/// How many are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FanOutLimits {
    /// So many at the same time.
    pub at_once: usize,
    /// How long each may take to answer.
    pub timeout: Option<Duration>,
}

impl FanOutLimits {
    /// Some at a time: most of them wait, for a disk, a lock or a probe.
    pub fn within(patience: Duration) -> Self {
        Self {
            at_once: 32,
            timeout: Some(patience),
        }
    }
}

/// The answer of each, in their order; `None` where none came in time.
///
/// What asks on after that is left behind on a thread of its own: a read of a process that is stuck in the kernel
/// cannot be called back.
pub fn fan_out<T, A>(
    those: &[T],
    FanOutLimits {
        at_once,
        timeout: patience,
    }: FanOutLimits,
    ask: impl Fn(&T) -> A + Send + Sync + 'static,
) -> Vec<Option<A>>
where
    T: Clone + Send + 'static,
    A: Send + 'static,
{
    let ask = Arc::new(ask);
    let (sender, receiver) = mpsc::channel();
    let mut answers: Vec<Option<A>> = those.iter().map(|_| None).collect();
    let mut next = 0;
    // In the order of their deadlines, since all have the same patience.
    let mut asked: VecDeque<(usize, Option<Instant>)> = VecDeque::new();
    while next < those.len() || !asked.is_empty() {
        while next < those.len() && asked.len() < at_once.max(1) {
            let (ask, sender, one, index) =
                (Arc::clone(&ask), sender.clone(), those[next].clone(), next);
            thread_pool::run(Box::new(move || {
                // Nobody listens any more when it comes too late.
                sender.send((index, ask(&one))).ok();
            }))
            .expect("a thread can be started");
            asked.push_back((next, patience.map(|patience| Instant::now() + patience)));
            next += 1;
        }
        let first = asked.front().and_then(|(_, deadline)| *deadline);
        let wait = first.map_or(Duration::MAX, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        match receiver.recv_timeout(wait) {
            Ok((index, answer)) => {
                // One that was given up may answer after all.
                let in_time = asked.iter().position(|(waiting, _)| *waiting == index);
                if let Some(position) = in_time {
                    asked.remove(position);
                }
                answers[index] = Some(answer);
            }
            Err(RecvTimeoutError::Timeout) => {
                asked.pop_front();
            }
            // Our own sender lives.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn answers_come_in_order_and_never_too_many_at_once() {
        static NOW: AtomicUsize = AtomicUsize::new(0);
        static MAX_CONCURRENT: AtomicUsize = AtomicUsize::new(0);
        let numbers: Vec<u32> = (0..1000).collect();
        let manner = FanOutLimits {
            at_once: 8,
            timeout: None,
        };
        let answers = fan_out(&numbers, manner, |number| {
            MAX_CONCURRENT.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::yield_now();
            NOW.fetch_sub(1, Ordering::SeqCst);
            number * 2
        });
        let expected: Vec<_> = numbers.iter().map(|number| Some(number * 2)).collect();
        assert_eq!(answers, expected);
        assert!(MAX_CONCURRENT.load(Ordering::SeqCst) <= 8);
    }

    #[test]
    fn those_that_never_answer_delay_nobody() {
        // More than are asked at once: the others get their turn when these are given up.
        static HELD: Mutex<()> = Mutex::new(());
        let held = HELD.lock();
        let manner = FanOutLimits::within(Duration::from_millis(50));
        let numbers: Vec<usize> = (0..40).collect();
        let answers = fan_out(&numbers, manner, |number| {
            if *number < 32 {
                drop(HELD.lock());
            }
            *number
        });
        drop(held);
        let answered: Vec<usize> = answers.into_iter().flatten().collect();
        assert!(answered.iter().all(|number| *number >= 32), "{answered:?}");
    }
}
