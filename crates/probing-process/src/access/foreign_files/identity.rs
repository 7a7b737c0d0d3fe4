//! The user identity with which our thread accesses files: the target's or our own.
//!
//! Root that creates a file for somebody else, and then gives it away, can be led to give away another file. So nothing
//! is given away: the calling thread asks the kernel to check its file accesses as the target's, and whatever it makes
//! belongs to the target from the start. What the target may not do itself, we then cannot be led to do for it.
#![expect(unsafe_code, reason = "setfsuid and setfsgid are C interfaces")]

use std::io;

use probing_proto::process::Pid;
use rustix::process::Gid;

use crate::procfs::status::Status;
use crate::read_text;

/// A user with its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    groups: Vec<u32>,
}

impl Identity {
    /// The one that the kernel checks the file accesses of process `pid` with. `None`: it is gone.
    pub fn of(pid: Pid) -> Option<Self> {
        let status = Status::of(pid)?;
        let text = read_text(pid, "status")?;
        let groups = text.lines().find_map(|line| line.strip_prefix("Groups:"))?;
        Some(Self {
            uid: status.uid,
            gid: status.gid,
            groups: groups
                .split_ascii_whitespace()
                .filter_map(|group| group.parse().ok())
                .collect(),
        })
    }

    /// That of this process.
    pub fn own() -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        }
    }

    /// Has the calling thread touch files as this user until the answer is dropped.
    pub(super) fn assume(&self) -> io::Result<Assumed> {
        let own = Self::own();
        if self.uid == own.uid {
            // Root stays root, and others have no choice.
            return Ok(Assumed { before: None });
        }
        let assumed = Assumed { before: Some(own) };
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        rustix::thread::set_thread_groups(&groups)?;
        set_file_ids(self.uid, self.gid)?;
        Ok(assumed)
    }
}

/// While this lives, its thread accesses files as another user.
#[derive(Debug)]
pub(super) struct Assumed {
    before: Option<Identity>,
}

impl Drop for Assumed {
    /// Always allowed: these were ours.
    fn drop(&mut self) {
        if let Some(own) = self.before.take() {
            _ = set_file_ids(own.uid, own.gid);
            let groups: Vec<Gid> = own.groups.into_iter().map(Gid::from_raw).collect();
            _ = rustix::thread::set_thread_groups(&groups);
        }
    }
}

/// Sets both, or fails. These calls report no failure of their own: they answer the id before, so the second of two
/// tells what the first has done.
fn set_file_ids(uid: u32, gid: u32) -> io::Result<()> {
    const ASK: u32 = u32::MAX;
    // SAFETY: takes a number and changes the calling thread's credentials only.
    unsafe { libc::setfsgid(gid) };
    // SAFETY: the same.
    unsafe { libc::setfsuid(uid) };
    // SAFETY: the same; an id that nobody has changes nothing.
    let now = unsafe { (libc::setfsuid(ASK), libc::setfsgid(ASK)) };
    let is_set = now == (uid.cast_signed(), gid.cast_signed());
    let refused = io::Error::from(io::ErrorKind::PermissionDenied);
    is_set.then_some(()).ok_or(refused)
}

/// Whether our own user is root, who can assume any identity.
#[cfg(test)]
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::access::foreign_files) fn nobody() -> Identity {
        Identity {
            uid: 65534,
            gid: 65534,
            groups: vec![4242],
        }
    }

    fn of_this_thread() -> Vec<String> {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let is_id = |line: &&str| {
            ["Uid:", "Gid:", "Groups:"]
                .iter()
                .any(|id| line.starts_with(id))
        };
        status.lines().filter(is_id).map(str::to_owned).collect()
    }

    #[test]
    fn a_thread_is_itself_again_afterwards() {
        if !is_root() {
            return;
        }
        let before = of_this_thread();
        let assumed = nobody().assume().unwrap();
        let meanwhile = of_this_thread();
        assert!(meanwhile[0].ends_with("\t65534"), "{meanwhile:?}");
        assert!(meanwhile[1].ends_with("\t65534"), "{meanwhile:?}");
        assert_eq!(meanwhile[2].trim_end(), "Groups:\t4242");
        let others = std::thread::spawn(|| Identity::own().uid).join();
        assert_eq!(others.unwrap(), 0);
        drop(assumed);
        assert_eq!(of_this_thread(), before);
    }

    #[test]
    fn a_process_has_the_identity_of_its_status() {
        let own = Identity::own();
        let seen = Identity::of(Pid(std::process::id())).unwrap();
        assert_eq!((seen.uid, seen.gid), (own.uid, own.gid));
    }
}
