//! The process at the other end of a Unix socket, by the kernel's word.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

use probing_proto::process::Pid;

/// Who listened on a socket when this end connected to it, or who made a pair of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// As `/proc` calls it; none when it cannot be seen from here: in another pid namespace, or when `/proc` shows another.
    pub pid: Option<Pid>,
    /// As seen from here. A user whom this namespace does not know is the overflow user, `nobody`.
    pub uid: u32,
}

impl Peer {
    /// Whoever is at the other end of `stream`.
    #[expect(
        unsafe_code,
        reason = "a peer in another pid namespace has the pid 0, which safe faces do not expect"
    )]
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        let mut credentials = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        let mut length = mem::size_of_val(&credentials) as libc::socklen_t;
        // SAFETY: the socket is open, and the buffer is as long as it is said to be.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let pid = u32::try_from(credentials.pid).unwrap_or_default();
        Ok(Self {
            pid: (pid != 0 && proc_is_ours()).then_some(Pid(pid)),
            uid: credentials.uid,
        })
    }
}

/// Whether the pids that the kernel tells us are those that `/proc` shows.
fn proc_is_ours() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.to_str() == Some(&std::process::id().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one).unwrap();
        assert_eq!(peer.pid, Some(Pid(std::process::id())));
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    }
}
