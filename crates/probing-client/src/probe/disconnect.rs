//! Detects the end of a connection that no thread reads from.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::probe::connection::Sender;

/// A second hold on a connection, for a thread that only waits for its end.
#[derive(Debug)]
pub struct DisconnectWatcher {
    sender: Arc<Sender>,
}

impl DisconnectWatcher {
    pub(crate) fn of(sender: Arc<Sender>) -> Self {
        Self { sender }
    }

    /// Whether we ended it ourselves.
    pub fn is_ours(&self) -> bool {
        self.sender.is_abandoned()
    }

    /// Waits until something is said on the connection, or it has ended.
    pub fn wait_for_word(&self) {
        let mut watched = [PollFd::new(
            self.sender.stream(),
            PollFlags::IN | PollFlags::RDHUP,
        )];
        while let Err(Errno::INTR) = poll(&mut watched, None) {}
    }

    /// Whether the connection has ended, within that time; without one, however long it takes.
    pub fn wait(&self, patience: Option<Duration>) -> bool {
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut watched = [PollFd::new(self.sender.stream(), PollFlags::RDHUP)];
            match poll(&mut watched, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                Ok(0) => return false,
                // It cannot be waited for any more: as good as gone.
                Ok(_) | Err(_) => return true,
            }
        }
    }
}
