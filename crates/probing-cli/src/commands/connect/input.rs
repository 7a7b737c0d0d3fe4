//! Waits for the program's next line and for the target's end, whichever comes first.

use std::io;

use probing_client::Contact;
use probing_proto::wire::json_lines::MAX_LINE;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// How often to look for the target where the kernel does not tell of its end.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputEvent {
    Line(Vec<u8>),
    /// A line has no end within this many bytes.
    TooLong(usize),
    /// The program has nothing more to ask, or is gone.
    InputEnded,
    TargetEnded,
}

/// Standard input, in lines.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// So many of them are known to hold no end of a line.
    seen: usize,
}

impl Input {
    pub(super) fn next(&mut self, contact: &Contact) -> io::Result<InputEvent> {
        let stdin = io::stdin();
        loop {
            if let Some(line) = self.line() {
                return Ok(InputEvent::Line(line));
            }
            if self.bytes.len() > MAX_LINE {
                return Ok(InputEvent::TooLong(MAX_LINE));
            }
            let end = contact.end();
            let mut files = vec![PollFd::new(&stdin, PollFlags::IN)];
            files.extend(end.as_ref().map(|end| PollFd::new(end, PollFlags::IN)));
            let patience = end.is_none().then_some(&LOOK_EVERY);
            match rustix::event::poll(&mut files, patience) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let input_ready = !files[0].revents().is_empty();
            let target_ready = files.get(1).is_none_or(|end| !end.revents().is_empty());
            if target_ready && contact.has_ended() {
                return Ok(InputEvent::TargetEnded);
            }
            if input_ready && self.read(&stdin)? == 0 {
                return Ok(InputEvent::InputEnded);
            }
        }
    }

    fn read(&mut self, stdin: &io::Stdin) -> io::Result<usize> {
        // Past the library's own buffer, which `poll` does not know of.
        let mut buffer = [0; 16 << 10];
        let length = match rustix::io::read(stdin, &mut buffer) {
            Err(Errno::INTR) => return self.read(stdin),
            length => length?,
        };
        self.bytes.extend_from_slice(&buffer[..length]);
        Ok(length)
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.bytes[self.seen..]
            .iter()
            .position(|&byte| byte == b'\n');
        let Some(end) = end else {
            self.seen = self.bytes.len();
            return None;
        };
        let rest = self.bytes.split_off(self.seen + end + 1);
        self.seen = 0;
        let mut line = std::mem::replace(&mut self.bytes, rest);
        line.pop();
        Some(line)
    }
}
