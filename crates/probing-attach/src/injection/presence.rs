//! The presence of other attaches in the same target, by locks on a file that the kernel has of it.
//!
//! Every attach holds a shared lock as long as it has anything in the target. Whoever gets the exclusive one is alone, so
//! what looks left is left. The kernel lets go of the locks of who is killed.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use probing_process::proc;
use probing_proto::process::Pid;

/// For an attach that is alone and takes back what others left.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_INTERVAL: Duration = Duration::from_micros(200);

/// As long as this lives, no other attach takes what this one has in the target for left.
#[derive(Debug)]
pub(crate) struct Presence {
    file: File,
}

impl Presence {
    /// `None` where it cannot be shown: then nothing of this attach may be recognisable as ours.
    pub(crate) fn show(pid: Pid) -> Option<Self> {
        // Only who may attach can open it, so nobody else can keep us waiting.
        let file = File::open(proc(pid, "mem")).ok()?;
        Self { file }.shared()
    }

    fn shared(self) -> Option<Self> {
        let asked = Instant::now();
        while self.file.try_lock_shared().is_err() {
            if asked.elapsed() > LOCK_TIMEOUT {
                return None;
            }
            thread::sleep(LOCK_INTERVAL);
        }
        Some(self)
    }

    /// Does something while no other attach is in the target, or not at all. Nothing of this one may be there yet: between
    /// the two locks it has none.
    pub(crate) fn alone(self, act: impl FnOnce()) -> Option<Self> {
        if self.file.try_lock().is_ok() {
            act();
        }
        self.shared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_alone_acts() {
        let pid = Pid(std::process::id());
        let acts = |presence: Presence| {
            let mut acted = false;
            let presence = presence.alone(|| acted = true).unwrap();
            (presence, acted)
        };
        let (one, acted) = acts(Presence::show(pid).unwrap());
        assert!(acted);
        let other = Presence::show(pid).unwrap();
        let (one, acted) = acts(one);
        assert!(!acted);
        drop(one);
        assert!(acts(other).1);
    }
}
