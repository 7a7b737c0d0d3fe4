//! One connection to a probe: messages out, messages in, each wait with a deadline.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use probing_process::access::peer::Peer;
use probing_process::procfs::processes::Process;
use probing_proto::message::{Event, Hello, Message, PROTOCOL, Request};
use probing_proto::process::ProcessKey;
use probing_proto::wire::{self, Decoder, Frame, MAX_ANSWER, MAX_REQUEST};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::{ClientError, LocalError};
use crate::probe::private_socket::SocketFile;

/// How long a probe may take to say hello, and to take a request from us.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to this socket, and who listens at its other end.
fn dialled(socket: &SocketFile, patience: Duration) -> Result<(UnixStream, Peer), ClientError> {
    let not_connected = |source: io::Error| {
        let socket = socket.path().to_owned();
        match source.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
                ClientError::Local(LocalError::NobodyListens { socket })
            }
            ErrorKind::WouldBlock => ClientError::Silent { patience },
            _ => ClientError::Local(LocalError::NotConnected { socket, source }),
        }
    };
    let stream = socket.dial().map_err(not_connected)?;
    let peer = Peer::of(&stream).map_err(|source| ClientError::Broken { source })?;
    Ok((stream, peer))
}

fn listener(peer: Peer) -> String {
    let uid = peer.uid;
    match peer.pid {
        Some(pid) => format!("process {pid} of uid {uid}"),
        None => format!("a process of uid {uid}"),
    }
}

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
    /// Connects to the probe of this process and hears its hello. Whoever else listens there is refused: the kernel says
    /// which process listens, and the probe says which process it is in.
    pub(crate) fn to_process(
        process: &Process,
        socket: &SocketFile,
        patience: Duration,
    ) -> Result<(Self, Hello), ClientError> {
        let wrong = |why: String| {
            ClientError::Local(LocalError::OtherProbe {
                socket: socket.path().to_owned(),
                why,
            })
        };
        let (stream, peer) = dialled(socket, patience)?;
        if peer.pid.is_some_and(|pid| pid != process.pid) || peer.uid != process.uid {
            let (meant, uid) = (process.pid, process.uid);
            let listener = listener(peer);
            return Err(wrong(format!(
                "{listener} listens there, not process {meant} of uid {uid}"
            )));
        }
        let (connection, hello) = Self::over(stream, patience)?;
        if !process.has_key(hello.key()) {
            let (answers, meant) = (hello.key(), process.key());
            return Err(wrong(format!("{answers} answers, not {meant}")));
        }
        Ok((connection, hello))
    }

    /// The same with the probe at a socket that the user named. Where its path names a process, it must be that one.
    pub(crate) fn to_socket(path: &Path, patience: Duration) -> Result<(Self, Hello), ClientError> {
        let wrong = |why: String| {
            ClientError::Local(LocalError::OtherProbe {
                socket: path.to_owned(),
                why,
            })
        };
        let Some(socket) = SocketFile::named(path)? else {
            let socket = path.to_owned();
            return Err(match fs::symlink_metadata(path) {
                Err(source) if source.kind() == ErrorKind::PermissionDenied => {
                    ClientError::Local(LocalError::NotConnected { socket, source })
                }
                _ => ClientError::Local(LocalError::NobodyListens { socket }),
            });
        };
        let (stream, peer) = dialled(&socket, patience)?;
        if peer.uid != socket.owner() {
            let (listener, owner) = (listener(peer), socket.owner());
            return Err(wrong(format!(
                "{listener} listens there, and the socket belongs to uid {owner}"
            )));
        }
        let (connection, hello) = Self::over(stream, patience)?;
        let key = hello.key();
        let folder = path.parent().and_then(Path::file_name);
        let named: Option<ProcessKey> = folder
            .and_then(|folder| folder.to_str())
            .and_then(|name| name.parse().ok());
        if let Some(meant) = named.filter(|named| *named != key) {
            return Err(wrong(format!("{key} answers, not {meant}")));
        }
        let listening = peer.pid.and_then(Process::read);
        if listening.is_some_and(|process| !process.has_key(key)) {
            let listener = listener(peer);
            return Err(wrong(format!(
                "{listener} listens there and says that it is {key}"
            )));
        }
        Ok((connection, hello))
    }

    /// Hears the hello on a socket that is connected.
    pub(crate) fn over(
        stream: UnixStream,
        patience: Duration,
    ) -> Result<(Self, Hello), ClientError> {
        stream
            .set_write_timeout(Some(CONNECT_TIMEOUT))
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
                ErrorKind::WouldBlock => ClientError::Silent {
                    patience: CONNECT_TIMEOUT,
                },
                _ => ClientError::Broken { source },
            })
    }
}
