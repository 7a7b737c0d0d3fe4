//! Signal masks of the probe's threads, so that the target's signals go where they always went.
#![expect(unsafe_code, reason = "pthread_sigmask has no safe face")]

use std::fs::File;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::ptr;

/// A set of blocked signals.
#[derive(Clone, Copy)]
pub(crate) struct Mask(libc::sigset_t);

impl Mask {
    /// Every signal.
    pub(crate) fn all() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset writes the whole set and cannot fail on a valid pointer.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    /// These signals; numbers that name none are left out.
    fn of(signals: &[i32]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset writes the whole set; sigaddset refuses numbers that are no signals.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            let mut set = set.assume_init();
            for &signal in signals {
                libc::sigaddset(&raw mut set, signal);
            }
            Self(set)
        }
    }

    /// What the main thread blocks now. A signal that the program blocks, to wait for it, would find any other thread.
    pub(crate) fn of_main_thread() -> Option<Self> {
        let path = format!("/proc/self/task/{}/status", std::process::id());
        // Every eval does this: one reading, with room for all of it.
        let mut status = [0; 4096];
        let length = File::open(path).ok()?.read(&mut status).ok()?;
        let status = String::from_utf8_lossy(&status[..length]);
        let blocked = status
            .lines()
            .find_map(|line| line.strip_prefix("SigBlk:"))?;
        let blocked = u64::from_str_radix(blocked.trim(), 16).ok()?;
        let signals: Vec<i32> = (1..=64).filter(|n| blocked >> (n - 1) & 1 == 1).collect();
        Some(Self::of(&signals))
    }

    /// Makes this the calling thread's mask and returns the one before.
    pub(crate) fn set(&self) -> Self {
        let mut before = Self::all();
        // SAFETY: both pointers are valid; SIG_SETMASK is a valid way, so the call cannot fail.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::from_ref(&self.0), &raw mut before.0)
        };
        before
    }
}

/// Runs `spawn`, which starts a thread, so that the thread is born with every signal blocked.
pub(crate) fn blocked<T>(spawn: impl FnOnce() -> T) -> T {
    let before = Mask::all().set();
    let spawned = spawn();
    before.set();
    spawned
}
