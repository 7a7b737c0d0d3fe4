//! A probe's messages over a WebSocket, for whoever speaks to probes over Unix sockets.
//!
//! Neither end waits for the other while a third has something to say; what cannot be passed on is not taken in.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use probing_proto::wire::websocket::Packet;
use probing_proto::wire::{Decoder, Frame, MAX_ANSWER, MAX_REQUEST};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};

use crate::agent::stream::{Duplex as _, Stream};

/// More than this waits for the Unix socket: the WebSocket is not read any further.
const HIGH: usize = 1 << 20;
/// Silence after which the other end is asked whether it is there.
const QUIET: Duration = Duration::from_secs(20);
/// Who does not say so by then is not.
const GONE: Duration = Duration::from_mins(1);
/// For the other end of a WebSocket to say goodbye, too.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Both ends of it.
#[derive(Debug)]
struct Relay {
    socket: WebSocket<Stream>,
    unix: UnixStream,
    /// From the Unix socket.
    decoder: Decoder,
    to_unix: Vec<u8>,
    /// The WebSocket takes no more for now.
    blocked: bool,
    heard: Instant,
}

/// Why it is over.
enum CloseReason {
    /// The WebSocket has ended.
    Socket,
    /// The Unix socket has.
    Unix,
}

impl Relay {
    /// Of the WebSocket, `ahead` has been read; `unix` leads to what takes the far end for a probe.
    fn new(stream: Stream, ahead: Vec<u8>, unix: UnixStream) -> Self {
        const MAX_MESSAGE_BYTES: usize = MAX_ANSWER + 64;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        Self {
            socket: WebSocket::from_partially_read(stream, ahead, Role::Client, Some(config)),
            unix,
            decoder: Decoder::new(MAX_REQUEST),
            to_unix: Vec::new(),
            blocked: false,
            heard: Instant::now(),
        }
    }

    /// Passes on what comes, until one of them ends.
    fn run(mut self) -> io::Result<()> {
        self.socket.get_mut().below().set_nonblocking()?;
        self.unix.set_nonblocking(true)?;
        let end = loop {
            match self.pass_all() {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(_) => break CloseReason::Socket,
            }
            self.wait()?;
            if self.heard.elapsed() > GONE {
                break CloseReason::Socket;
            }
        };
        match end {
            CloseReason::Socket => self.unix.shutdown(Shutdown::Both),
            CloseReason::Unix => {
                self.say_goodbye();
                Ok(())
            }
        }
    }

    /// As long as anything moves.
    fn pass_all(&mut self) -> Result<Option<CloseReason>, Error> {
        loop {
            let mut moved = false;
            while self.to_unix.len() < HIGH {
                match self.socket.read() {
                    Ok(packet) => self.take(packet)?,
                    Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return Ok(Some(CloseReason::Socket)),
                }
                self.heard = Instant::now();
                moved = true;
            }
            match self.write_unix() {
                Ok(wrote) => moved |= wrote,
                Err(_) => return Ok(Some(CloseReason::Unix)),
            }
            match self.read_unix()? {
                Some(read) => moved |= read,
                None => return Ok(Some(CloseReason::Unix)),
            }
            self.flush()?;
            if !moved {
                return Ok(None);
            }
        }
    }

    fn take(&mut self, message: Message) -> Result<(), Error> {
        let packet = match message {
            Message::Text(text) => Packet::Text(text.as_str().to_owned()),
            Message::Binary(bytes) => Packet::Binary(bytes.into()),
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => {
                return Ok(());
            }
        };
        let bytes = packet
            .into_frame(MAX_ANSWER)
            .and_then(|frame| frame.to_bytes(MAX_ANSWER).ok());
        let bytes = bytes.ok_or_else(|| io::Error::from(ErrorKind::InvalidData))?;
        self.to_unix.extend(bytes);
        Ok(())
    }

    fn send(&mut self, message: Message) -> Result<(), Error> {
        match self.socket.write(message) {
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                self.blocked = true;
                Ok(())
            }
            sent => sent,
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        match self.socket.flush() {
            Ok(()) => self.blocked = false,
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn write_unix(&mut self) -> io::Result<bool> {
        let mut written = 0;
        while written < self.to_unix.len() {
            match self.unix.write(&self.to_unix[written..]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.to_unix.drain(..written);
        Ok(written > 0)
    }

    /// Whether there was anything; `None` at its end.
    fn read_unix(&mut self) -> Result<Option<bool>, Error> {
        let mut moved = false;
        let mut buffer = [0; 16 << 10];
        while !self.blocked {
            // What came along with the hello.
            while let Some(frame) = self.next_frame()? {
                self.send(packed(frame))?;
            }
            match self.unix.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => {
                    self.decoder.push(&buffer[..length]);
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(moved))
    }

    fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        let frame = self.decoder.next_frame();
        frame.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// Until one of them has something, or takes something again.
    fn wait(&mut self) -> io::Result<()> {
        let mut socket = PollFlags::empty();
        socket.set(PollFlags::IN, self.to_unix.len() < HIGH);
        socket.set(PollFlags::OUT, self.blocked);
        let mut unix = PollFlags::empty();
        unix.set(PollFlags::IN, !self.blocked);
        unix.set(PollFlags::OUT, !self.to_unix.is_empty());
        let patience = Timespec::try_from(QUIET).ok();
        let tcp = self.socket.get_mut().below();
        let mut files = [
            PollFd::from_borrowed_fd(tcp.fd(), socket),
            PollFd::new(&self.unix, unix),
        ];
        match poll(&mut files, patience.as_ref()) {
            Ok(0) => {
                // A dead connection is noticed by whoever says something on it.
                self.socket
                    .write(Message::Ping(tungstenite::Bytes::new()))
                    .ok();
                Ok(())
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the WebSocket as one should: the other end has read all that was said before.
    fn say_goodbye(&mut self) {
        let until = Instant::now() + CLOSE_TIMEOUT;
        if self.socket.close(None).is_err() && !self.blocked {
            return;
        }
        while Instant::now() < until {
            match self.socket.read() {
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(_) => continue,
                Err(_) => return,
            }
            // Wakes up for either: there is little left to say.
            let left = until.saturating_duration_since(Instant::now());
            let patience = Timespec::try_from(left).ok();
            let tcp = self.socket.get_mut().below();
            let mut files = [PollFd::from_borrowed_fd(tcp.fd(), PollFlags::IN)];
            if poll(&mut files, patience.as_ref()).is_err() {
                return;
            }
        }
    }
}

fn packed(frame: Frame) -> Message {
    match Packet::from(frame) {
        Packet::Text(json) => Message::text(json),
        Packet::Binary(bytes) => Message::binary(bytes),
    }
}

/// A Unix socket whose far end is the WebSocket's: for whoever speaks to probes over sockets.
pub(crate) fn bridged(stream: Stream, ahead: Vec<u8>) -> io::Result<UnixStream> {
    let (near, far) = UnixStream::pair()?;
    let relay = Relay::new(stream, ahead, far);
    std::thread::Builder::new()
        .name("relay".to_owned())
        .spawn(move || relay.run())?;
    Ok(near)
}
