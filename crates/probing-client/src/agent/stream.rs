//! A byte stream over TCP, TLS, a Unix socket or SSH, with a deadline for every wait.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};

/// What all kinds have in common.
pub(crate) trait Duplex: Read + Write + Send + fmt::Debug {
    /// The connection below.
    fn below(&mut self) -> &mut Timed;
}

/// Any kind.
pub(crate) type Stream = Box<dyn Duplex>;

/// One whose reads and writes fail with [`ErrorKind::TimedOut`] at the deadline, however slowly bytes trickle in.
#[derive(Debug)]
pub(crate) struct Timed {
    line: Line,
    deadline: Option<Instant>,
}

#[derive(Debug)]
enum Line {
    Tcp(TcpStream),
    Unix(UnixStream),
    Ssh(UnixStream, Child),
}

impl Timed {
    pub(crate) fn over_tcp(tcp: TcpStream) -> io::Result<Self> {
        // A message is one write, and the other end waits for it.
        tcp.set_nodelay(true)?;
        Ok(Self {
            line: Line::Tcp(tcp),
            deadline: None,
        })
    }

    /// An agent on this machine.
    pub(crate) fn over_unix(socket: UnixStream) -> Self {
        Self {
            line: Line::Unix(socket),
            deadline: None,
        }
    }

    /// The child carries it, and ends with it.
    pub(crate) fn over_ssh(socket: UnixStream, child: Child) -> Self {
        Self {
            line: Line::Ssh(socket, child),
            deadline: None,
        }
    }

    /// For all that follows; without one, waits have no end.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        if self.deadline.is_some() && deadline.is_none() {
            self.line.set_timeouts(None)?;
        }
        self.deadline = deadline;
        Ok(())
    }

    /// Without waiting at all: what would wait fails with [`ErrorKind::WouldBlock`].
    pub(crate) fn set_nonblocking(&mut self) -> io::Result<()> {
        self.deadline = None;
        match &self.line {
            Line::Tcp(tcp) => tcp.set_nonblocking(true),
            Line::Unix(socket) | Line::Ssh(socket, _) => socket.set_nonblocking(true),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.line {
            Line::Tcp(tcp) => tcp.as_fd(),
            Line::Unix(socket) | Line::Ssh(socket, _) => socket.as_fd(),
        }
    }

    fn patience(&self) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else {
            return Ok(None);
        };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            patience => Ok(Some(patience)),
        }
    }

    fn timed(&self, error: io::Error) -> io::Error {
        match error.kind() {
            ErrorKind::WouldBlock if self.deadline.is_some() => ErrorKind::TimedOut.into(),
            _ => error,
        }
    }
}

impl Line {
    fn set_timeouts(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => {
                tcp.set_read_timeout(patience)?;
                tcp.set_write_timeout(patience)
            }
            Self::Unix(socket) | Self::Ssh(socket, _) => {
                socket.set_read_timeout(patience)?;
                socket.set_write_timeout(patience)
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Self::Ssh(socket, child) = self {
            // It may have gone already; what it started there ends with its input.
            socket.shutdown(Shutdown::Both).ok();
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(patience) = self.patience()? {
            self.line.set_timeouts(Some(patience))?;
        }
        let read = match &mut self.line {
            Line::Tcp(tcp) => tcp.read(buffer),
            Line::Unix(socket) | Line::Ssh(socket, _) => socket.read(buffer),
        };
        read.map_err(|error| self.timed(error))
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(patience) = self.patience()? {
            self.line.set_timeouts(Some(patience))?;
        }
        let written = match &mut self.line {
            Line::Tcp(tcp) => tcp.write(bytes),
            Line::Unix(socket) | Line::Ssh(socket, _) => socket.write(bytes),
        };
        written.map_err(|error| self.timed(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Duplex for Timed {
    fn below(&mut self) -> &mut Timed {
        self
    }
}

impl Duplex for StreamOwned<ClientConnection, Timed> {
    fn below(&mut self) -> &mut Timed {
        &mut self.sock
    }
}

impl Duplex for Stream {
    fn below(&mut self) -> &mut Timed {
        (**self).below()
    }
}
