//! Asks many at the same time. One that never answers makes nobody wait longer than its own deadline.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Asked at the same time. Most of them wait, for a disk, a lock or a probe.
const AT_ONCE: usize = 32;

/// The answer of each, in their order; `None` where none came within `patience`.
///
/// What asks on after that is left behind on a thread of its own: a read of a process that is stuck in the kernel
/// cannot be called back.
pub fn ask_each<T, A>(
    those: &[T],
    patience: Option<Duration>,
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
        while next < those.len() && asked.len() < AT_ONCE {
            let (ask, sender, one, index) =
                (Arc::clone(&ask), sender.clone(), those[next].clone(), next);
            thread::spawn(move || {
                // Nobody listens any more when it comes too late.
                sender.send((index, ask(&one))).ok();
            });
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

    use super::*;

    #[test]
    fn answers_come_in_order_and_never_too_many_at_once() {
        static NOW: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let numbers: Vec<u32> = (0..1000).collect();
        let answers = ask_each(&numbers, None, |number| {
            MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::yield_now();
            NOW.fetch_sub(1, Ordering::SeqCst);
            number * 2
        });
        let expected: Vec<_> = numbers.iter().map(|number| Some(number * 2)).collect();
        assert_eq!(answers, expected);
        assert!(MOST.load(Ordering::SeqCst) <= AT_ONCE);
    }

    #[test]
    fn those_that_never_answer_delay_nobody() {
        // More than are asked at once: the others get their turn when these are given up.
        static HELD: Mutex<()> = Mutex::new(());
        let held = HELD.lock();
        let numbers: Vec<usize> = (0..AT_ONCE + 8).collect();
        let answers = ask_each(&numbers, Some(Duration::from_millis(50)), |number| {
            if *number < AT_ONCE {
                drop(HELD.lock());
            }
            *number
        });
        drop(held);
        let answered: Vec<usize> = answers.into_iter().flatten().collect();
        assert!(
            answered.iter().all(|number| *number >= AT_ONCE),
            "{answered:?}"
        );
    }
}
