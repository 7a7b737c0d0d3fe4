//! A connection of bytes: TCP, plain or within TLS, no wait of which outlasts its deadline.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};

/// What both kinds have in common.
pub(crate) trait Duplex: Read + Write + Send + fmt::Debug {
    /// The connection below.
    fn tcp(&mut self) -> &mut TimedTcp;
}

/// Either kind.
pub(crate) type Stream = Box<dyn Duplex>;

/// TCP whose reads and writes fail with [`ErrorKind::TimedOut`] at the deadline, however slowly bytes trickle in.
#[derive(Debug)]
pub(crate) struct TimedTcp {
    tcp: TcpStream,
    deadline: Option<Instant>,
}

impl TimedTcp {
    pub(crate) fn new(tcp: TcpStream) -> io::Result<Self> {
        // A message is one write, and somebody waits for it.
        tcp.set_nodelay(true)?;
        Ok(Self {
            tcp,
            deadline: None,
        })
    }

    /// For all that follows; without one, waits have no end.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        if self.deadline.is_some() && deadline.is_none() {
            self.tcp.set_read_timeout(None)?;
            self.tcp.set_write_timeout(None)?;
        }
        self.deadline = deadline;
        Ok(())
    }

    /// Without waiting at all: what would wait fails with [`ErrorKind::WouldBlock`].
    pub(crate) fn set_nonblocking(&mut self) -> io::Result<()> {
        self.deadline = None;
        self.tcp.set_nonblocking(true)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
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

impl Read for TimedTcp {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(patience) = self.patience()? {
            self.tcp.set_read_timeout(Some(patience))?;
        }
        self.tcp.read(buffer).map_err(|error| self.timed(error))
    }
}

impl Write for TimedTcp {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(patience) = self.patience()? {
            self.tcp.set_write_timeout(Some(patience))?;
        }
        self.tcp.write(bytes).map_err(|error| self.timed(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Duplex for TimedTcp {
    fn tcp(&mut self) -> &mut TimedTcp {
        self
    }
}

impl Duplex for StreamOwned<ClientConnection, TimedTcp> {
    fn tcp(&mut self) -> &mut TimedTcp {
        &mut self.sock
    }
}

impl Duplex for Stream {
    fn tcp(&mut self) -> &mut TimedTcp {
        (**self).tcp()
    }
}
