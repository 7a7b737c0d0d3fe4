//! Commands that come from a pipe or a file.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::commands::debug::is_complete;

/// Standard input, in commands.
pub(super) struct Script {
    input: BufReader<File>,
}

impl Script {
    pub(super) fn begin() -> io::Result<Self> {
        let input = rustix::io::dup(io::stdin())?;
        Ok(Self {
            input: BufReader::new(File::from(input)),
        })
    }

    /// The next command; one that goes on in the lines behind it comes with those.
    pub(super) fn next(&mut self) -> io::Result<Option<String>> {
        let mut text = String::new();
        loop {
            if self.input.read_line(&mut text)? == 0 {
                return Ok(Some(text).filter(|text| !text.is_empty()));
            }
            let line = text.trim_end_matches('\n');
            if is_complete(line) {
                return Ok(Some(line.to_owned()));
            }
        }
    }

    /// Whether no command will come any more, as far as can be told without waiting: then nobody is there for another stop.
    pub(super) fn is_over(&mut self) -> io::Result<bool> {
        if !self.input.buffer().is_empty() {
            return Ok(false);
        }
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let is_ready = poll(
            &mut [PollFd::new(self.input.get_ref(), PollFlags::IN)],
            Some(&now),
        )? > 0;
        Ok(is_ready && self.input.fill_buf()?.is_empty())
    }
}
