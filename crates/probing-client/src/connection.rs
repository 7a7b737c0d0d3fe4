//! One connection to a probe: messages out, messages in, each wait with a deadline.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use probing_proto::message::{Event, Hello, Message, PROTOCOL, Request};
use probing_proto::wire::{self, Decoder, Frame, MAX_ANSWER, MAX_REQUEST};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::ClientError;

/// How long a probe may take to say hello, and to take a request from us.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    decoder: Decoder,
}

/// Connects without waiting: a process that accepts nobody (stopped, hung) would make a plain connect wait for ever
/// once its queue is full.
pub(crate) fn dial(socket: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(socket)?)?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

impl Connection {
    /// Connects and hears the probe's hello.
    pub(crate) fn open(socket: &Path, patience: Duration) -> Result<(Self, Hello), ClientError> {
        let not_connected = |source: io::Error| match source.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => ClientError::NobodyListens {
                socket: socket.to_owned(),
            },
            ErrorKind::WouldBlock => ClientError::Silent { patience },
            _ => ClientError::NotConnected {
                socket: socket.to_owned(),
                source,
            },
        };
        let stream = dial(socket).map_err(not_connected)?;
        Self::over(stream, patience)
    }

    /// The same over a socket that is connected.
    pub(crate) fn over(
        stream: UnixStream,
        patience: Duration,
    ) -> Result<(Self, Hello), ClientError> {
        stream
            .set_write_timeout(Some(PATIENCE))
            .map_err(|source| ClientError::Broken { source })?;
        let mut connection = Self {
            stream,
            decoder: Decoder::new(MAX_ANSWER),
        };
        let Some(message) = connection.receive(Some(Instant::now() + patience))? else {
            return Err(ClientError::Silent { patience });
        };
        match message.event {
            Event::Hello(hello) if hello.protocol == PROTOCOL => Ok((connection, hello)),
            Event::Hello(hello) => Err(ClientError::OtherProtocol {
                theirs: hello.protocol,
            }),
            Event::Failed(failure) => Err(ClientError::Refused(failure)),
            _ => Err(ClientError::OtherProtocol { theirs: 0 }),
        }
    }

    /// The socket, and what was read of it and is no whole frame yet.
    pub(crate) fn into_socket(self) -> (UnixStream, Vec<u8>) {
        (self.stream, self.decoder.into_rest())
    }

    /// Whether the other end has not closed it, as far as can be told without waiting.
    pub(crate) fn is_open(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&self.stream, &mut [0; 1], flags) {
            Ok((length, _)) => length > 0,
            Err(error) => error == Errno::AGAIN,
        }
    }

    /// A second handle that can only send.
    pub(crate) fn sender(&self) -> Result<Sender, ClientError> {
        let stream = self
            .stream
            .try_clone()
            .map_err(|source| ClientError::Broken { source })?;
        Ok(Sender {
            stream,
            abandoned: AtomicBool::new(false),
        })
    }

    /// The next message; `None` when the deadline passed first.
    pub(crate) fn receive(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<Message>, ClientError> {
        let frame = self.receive_frame(deadline)?;
        Ok(frame.map(|frame| frame.message()).transpose()?)
    }

    /// The next message of those that have arrived; `None` when there is none.
    pub(crate) fn receive_ready(&mut self) -> Result<Option<Message>, ClientError> {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(Some(frame.message()?));
            }
            match rustix::net::recv(&self.stream, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(ClientError::Gone),
                Ok((length, _)) => self.decoder.push(&buffer[..length]),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => {
                    let source = error.into();
                    return Err(ClientError::Broken { source });
                }
            }
        }
    }

    /// The same, with the bytes that came along.
    pub(crate) fn receive_frame(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<Frame>, ClientError> {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(Some(frame));
            }
            let patience =
                match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                    Some(Duration::ZERO) => return Ok(None),
                    patience => patience,
                };
            let read = self
                .stream
                .set_read_timeout(patience)
                .and_then(|()| self.stream.read(&mut buffer));
            match read {
                Ok(0) => return Err(ClientError::Gone),
                Ok(length) => self.decoder.push(&buffer[..length]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(ClientError::Gone);
                }
                Err(source) => return Err(ClientError::Broken { source }),
            }
        }
    }
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    stream: UnixStream,
    abandoned: AtomicBool,
}

impl Sender {
    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Ends the connection: whoever waits for something on it stops waiting.
    pub(crate) fn abandon(&self) -> Result<(), ClientError> {
        self.abandoned.store(true, Ordering::Release);
        self.stream
            .shutdown(Shutdown::Both)
            .map_err(|source| ClientError::Broken { source })
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Sends a request in one write.
    pub(crate) fn send(&self, request: &Request) -> Result<(), ClientError> {
        let bytes = wire::encode(request, &[], MAX_REQUEST)?;
        (&self.stream)
            .write_all(&bytes)
            .map_err(|source| match source.kind() {
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ClientError::Gone,
                ErrorKind::WouldBlock => ClientError::Silent { patience: PATIENCE },
                _ => ClientError::Broken { source },
            })
    }
}
