//! A probe's messages over a WebSocket: the same at both ends, between a WebSocket and a Unix socket.
//!
//! A message without bytes travels as a text, its JSON; one with bytes as a binary message, its frame. Neither end
//! waits for the other while a third has something to say; what cannot be passed on is not taken in.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use probing_proto::message::{Event, Failure, Message, RequestId};
use probing_proto::wire::{Decoder, Frame, MAX_ANSWER, MAX_REQUEST};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Error, Message as Packet, WebSocket};

use super::stream::{Duplex as _, Stream};

/// More than this waits for the Unix socket: the WebSocket is not read any further.
const HIGH: usize = 1 << 20;
/// Who has not been heard for so long is asked whether it is there.
const QUIET: Duration = Duration::from_secs(20);
/// Who does not say so by then is not.
const GONE: Duration = Duration::from_mins(1);
/// For the other end of a WebSocket to say goodbye, too.
const FAREWELL: Duration = Duration::from_secs(1);

/// Looks at what comes from the WebSocket before it is passed on.
pub trait Judge {
    /// The refusal is told to who sent it, and the message goes no further.
    fn check(&mut self, message: &Frame) -> Result<(), Failure>;
}

/// Lets everything pass.
#[derive(Debug)]
pub(crate) struct Anything;

impl Judge for Anything {
    fn check(&mut self, _: &Frame) -> Result<(), Failure> {
        Ok(())
    }
}

/// Both ends of it.
#[derive(Debug)]
pub struct Relay {
    socket: WebSocket<Stream>,
    unix: UnixStream,
    /// From the Unix socket.
    decoder: Decoder,
    to_unix: Vec<u8>,
    /// Longest frame from the WebSocket.
    most: usize,
    /// The WebSocket takes no more for now.
    blocked: bool,
    heard: Instant,
}

/// Why it is over.
enum End {
    /// The WebSocket has ended.
    Socket,
    /// The Unix socket has.
    Unix,
}

impl Relay {
    /// Where clients arrive: `unix` leads to a probe, from which `read` has come already; of the WebSocket, `ahead` has.
    pub fn to_probe(stream: Stream, ahead: Vec<u8>, unix: UnixStream, read: &[u8]) -> Self {
        let mut relay = Self::new(stream, ahead, unix, (Role::Server, MAX_REQUEST, MAX_ANSWER));
        relay.decoder.push(read);
        relay
    }

    /// Where clients are: `unix` leads to what takes the far end for a probe.
    pub(crate) fn to_client(stream: Stream, ahead: Vec<u8>, unix: UnixStream) -> Self {
        Self::new(stream, ahead, unix, (Role::Client, MAX_ANSWER, MAX_REQUEST))
    }

    fn new(
        stream: Stream,
        ahead: Vec<u8>,
        unix: UnixStream,
        (role, most, most_back): (Role, usize, usize),
    ) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(most + 64))
            .max_frame_size(Some(most + 64));
        Self {
            socket: WebSocket::from_partially_read(stream, ahead, role, Some(config)),
            unix,
            decoder: Decoder::new(most_back),
            to_unix: Vec::new(),
            most,
            blocked: false,
            heard: Instant::now(),
        }
    }

    /// Passes on what comes, until one of them ends.
    pub fn run(mut self, judge: &mut dyn Judge) -> io::Result<()> {
        self.socket.get_mut().tcp().set_nonblocking()?;
        self.unix.set_nonblocking(true)?;
        let end = loop {
            match self.pass_all(judge) {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(_) => break End::Socket,
            }
            self.wait()?;
            if self.heard.elapsed() > GONE {
                break End::Socket;
            }
        };
        match end {
            // A probe whose client has gone stops what that had asked for.
            End::Socket => self.unix.shutdown(Shutdown::Both),
            End::Unix => {
                self.say_goodbye();
                Ok(())
            }
        }
    }

    /// As long as anything moves.
    fn pass_all(&mut self, judge: &mut dyn Judge) -> Result<Option<End>, Error> {
        loop {
            let mut moved = false;
            while self.to_unix.len() < HIGH {
                match self.socket.read() {
                    Ok(packet) => self.take(packet, judge)?,
                    Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return Ok(Some(End::Socket)),
                }
                self.heard = Instant::now();
                moved = true;
            }
            match self.write_unix() {
                Ok(wrote) => moved |= wrote,
                Err(_) => return Ok(Some(End::Unix)),
            }
            match self.read_unix()? {
                Some(read) => moved |= read,
                None => return Ok(Some(End::Unix)),
            }
            self.flush()?;
            if !moved {
                return Ok(None);
            }
        }
    }

    fn take(&mut self, packet: Packet, judge: &mut dyn Judge) -> Result<(), Error> {
        let frame = match packet {
            Packet::Text(text) => Some(Frame {
                json: text.as_bytes().to_vec(),
                payload: Vec::new(),
            }),
            Packet::Binary(bytes) => {
                let mut decoder = Decoder::new(self.most);
                decoder.push(&bytes);
                decoder.next_frame().ok().flatten()
            }
            Packet::Ping(_) | Packet::Pong(_) | Packet::Close(_) | Packet::Frame(_) => {
                return Ok(());
            }
        };
        let checked = match &frame {
            Some(frame) => judge.check(frame),
            None => Err(Failure::new("message not understood: no whole frame")),
        };
        match (frame, checked) {
            (Some(frame), Ok(())) => match frame.to_bytes(self.most) {
                Ok(bytes) => self.to_unix.extend(bytes),
                Err(error) => self.refuse(None, Failure::new(error.to_string()))?,
            },
            (frame, Err(failure)) => {
                let id = frame.and_then(|frame| id_in(&frame));
                self.refuse(id, failure)?;
            }
            (None, Ok(())) => {}
        }
        Ok(())
    }

    fn refuse(&mut self, id: Option<RequestId>, failure: Failure) -> Result<(), Error> {
        let event = Event::Failed(failure);
        let text = serde_json::to_string(&Message { id, event }).unwrap_or_default();
        self.send(Packet::text(text))
    }

    fn send(&mut self, packet: Packet) -> Result<(), Error> {
        match self.socket.write(packet) {
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
                self.send(packet(frame))?;
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
        let tcp = self.socket.get_mut().tcp();
        let mut files = [
            PollFd::from_borrowed_fd(tcp.fd(), socket),
            PollFd::new(&self.unix, unix),
        ];
        match poll(&mut files, patience.as_ref()) {
            Ok(0) => {
                // A dead connection is noticed by whoever says something on it.
                self.socket
                    .write(Packet::Ping(tungstenite::Bytes::new()))
                    .ok();
                Ok(())
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the WebSocket as one should: the other end has read all that was said before.
    fn say_goodbye(&mut self) {
        let until = Instant::now() + FAREWELL;
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
            let tcp = self.socket.get_mut().tcp();
            let mut files = [PollFd::from_borrowed_fd(tcp.fd(), PollFlags::IN)];
            if poll(&mut files, patience.as_ref()).is_err() {
                return;
            }
        }
    }
}

fn packet(frame: Frame) -> Packet {
    if frame.payload.is_empty() {
        match String::from_utf8(frame.json) {
            Ok(json) => return Packet::text(json),
            Err(error) => {
                let json = error.into_bytes();
                return binary(&Frame { json, ..frame });
            }
        }
    }
    binary(&frame)
}

fn binary(frame: &Frame) -> Packet {
    Packet::binary(frame.to_bytes(usize::MAX).unwrap_or_default())
}

/// The id of a request that is not understood otherwise.
fn id_in(frame: &Frame) -> Option<RequestId> {
    let value: serde_json::Value = frame.message().ok()?;
    value.get("id")?.as_u64().map(RequestId)
}

/// A Unix socket whose far end is the WebSocket's: for whoever speaks to probes over sockets.
pub(crate) fn bridged(stream: Stream, ahead: Vec<u8>) -> io::Result<UnixStream> {
    let (near, far) = UnixStream::pair()?;
    let relay = Relay::to_client(stream, ahead, far);
    std::thread::Builder::new()
        .name("relay".to_owned())
        .spawn(move || relay.run(&mut Anything))?;
    Ok(near)
}
