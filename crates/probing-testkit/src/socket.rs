//! A client that speaks bytes: for what no well-behaved client would send.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use probing_proto::message::{Event, Message, Request};
use probing_proto::paths;
use probing_proto::process::{Pid, ProcessKey, Stat};
use probing_proto::wire::{self, Decoder, MAX_ANSWER, MAX_REQUEST};

use crate::{DEADLINE, Sandbox, Target};

#[derive(Debug)]
pub struct RawClient {
    stream: UnixStream,
    decoder: Decoder,
}

impl RawClient {
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the probe listens");
        stream
            .set_read_timeout(Some(DEADLINE))
            .expect("a timeout can be set");
        stream
            .set_write_timeout(Some(DEADLINE))
            .expect("a timeout can be set");
        Self {
            stream,
            decoder: Decoder::new(MAX_ANSWER),
        }
    }

    /// Connects to the probe of a target and takes its hello.
    pub fn of(sandbox: &Sandbox, target: &Target) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", target.pid()));
        let stat = Stat::parse(&stat.expect("a process")).expect("its stat");
        let key = ProcessKey {
            pid: Pid(target.pid()),
            start_ticks: stat.start_ticks,
        };
        Self::greeted(&paths::socket_path(&sandbox.runtime_dir(), key))
    }

    /// Connects and takes the hello.
    pub fn greeted(socket: &Path) -> Self {
        let mut client = Self::connect(socket);
        let hello = client.receive().expect("a hello");
        assert!(matches!(hello.event, Event::Hello(_)), "{hello:?}");
        client
    }

    /// Sends bytes; a probe that has hung up does not take them.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).ok();
    }

    pub fn send(&mut self, request: &Request) {
        let bytes = wire::encode(request, &[], MAX_REQUEST).expect("it can be encoded");
        self.stream.write_all(&bytes).expect("the probe reads");
    }

    /// The next message, `None` at the end of the connection.
    pub fn receive(&mut self) -> Option<Message> {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(frame) = self.decoder.next_frame().expect("a frame") {
                return Some(frame.message().expect("a message"));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(length) => self.decoder.push(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// Messages up to and with the first that `is_last`.
    pub fn receive_until(&mut self, is_last: impl Fn(&Message) -> bool) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let message = self.receive().expect("more messages");
            let last = is_last(&message);
            messages.push(message);
            if last {
                return messages;
            }
        }
    }
}
