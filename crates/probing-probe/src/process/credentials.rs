//! Who is at the other end of a connection, by the kernel's word.
#![expect(
    unsafe_code,
    reason = "a peer in another pid namespace has the pid 0, which safe faces do not expect"
)]

use std::io;
use std::mem;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

/// The user who connected. One whom this user namespace does not know is the overflow user, `nobody`.
pub(crate) fn uid_of(stream: &UnixStream) -> io::Result<u32> {
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
    if result == 0 {
        Ok(credentials.uid)
    } else {
        Err(io::Error::last_os_error())
    }
}
