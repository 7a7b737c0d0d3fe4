//! One connection to a probe: a thread reads its messages, another writes requests to it.
//!
//! Requests are written by a thread of their own, so that a process that is stopped (SIGSTOP) and reads nothing keeps nobody waiting.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use probing_client::Probe;
use probing_proto::message::{Event, Failure, Message, Request};
use probing_proto::wire::{self, Decoder, MAX_ANSWER, MAX_REQUEST};

use crate::driver::Heard;
use crate::session::Link;

const READ_SIZE: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct ProbeLink {
    requests: Sender<Request>,
    /// To end both threads.
    stream: UnixStream,
}

impl ProbeLink {
    pub(super) fn begin(
        probe: Probe,
        target: usize,
        link: Link,
        sender: &Sender<Heard>,
    ) -> io::Result<Self> {
        let (_, stream, rest) = probe.into_socket();
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        let (reads, writes) = (stream.try_clone()?, stream.try_clone()?);
        let (requests, to_write) = mpsc::channel();
        let to_session = sender.clone();
        thread::Builder::new()
            .name("from-probe".to_owned())
            .spawn(move || {
                let reason = read(reads, rest, |message| {
                    let message = Box::new(message);
                    to_session
                        .send(Heard::Message {
                            target,
                            link,
                            message,
                        })
                        .is_ok()
                });
                // Nobody is there to hear it when the session is over.
                to_session.send(Heard::Closed { target, reason }).ok();
            })?;
        let to_session = sender.clone();
        thread::Builder::new()
            .name("to-probe".to_owned())
            .spawn(move || {
                write(writes, &to_write, |request, error| {
                    let event = Event::Failed(Failure::new(error));
                    let message = Box::new(Message {
                        id: Some(request.id),
                        event,
                    });
                    to_session
                        .send(Heard::Message {
                            target,
                            link,
                            message,
                        })
                        .ok();
                });
            })?;
        Ok(Self { requests, stream })
    }

    pub(super) fn send(&self, request: Request) {
        // A connection that has ended is told by its reader.
        self.requests.send(request).ok();
    }
}

/// The probe then takes back what was set and stopped on this connection.
impl Drop for ProbeLink {
    fn drop(&mut self) {
        self.stream.shutdown(Shutdown::Both).ok();
    }
}

/// Until the connection ends, or nobody hears any more. Why it ended.
fn read(mut stream: UnixStream, rest: Vec<u8>, mut hear: impl FnMut(Message) -> bool) -> String {
    let mut decoder = Decoder::new(MAX_ANSWER);
    decoder.push(&rest);
    let mut buffer = vec![0; READ_SIZE];
    loop {
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => match frame.message() {
                    Ok(message) => {
                        if !hear(message) {
                            return String::new();
                        }
                    }
                    Err(error) => return format!("the probe's words are not understood: {error}"),
                },
                Err(error) => return format!("the probe's words are not understood: {error}"),
            }
        }
        match stream.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => {
                return "the process has ended, or its probe was taken out".to_owned();
            }
            Ok(length) => decoder.push(&buffer[..length]),
        }
    }
}

fn write(mut stream: UnixStream, requests: &Receiver<Request>, refuse: impl Fn(&Request, String)) {
    for request in requests {
        let bytes = match wire::encode(&request, &[], MAX_REQUEST) {
            Ok(bytes) => bytes,
            Err(error) => {
                refuse(&request, error.to_string());
                continue;
            }
        };
        if stream.write_all(&bytes).is_err() {
            return;
        }
    }
}
