//! What a command printed and how it ended.

use std::fmt;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::process;

/// A command that has ended.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandResult {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CommandResult {
    /// Runs it with no input.
    ///
    /// # Panics
    ///
    /// When it does not end in time.
    pub fn to_the_end(mut command: Command) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        Self::finished(child)
    }

    /// Waits for a command that was started with pipes.
    pub fn finished(mut child: Child) -> Self {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut pipe) = pipe {
                    pipe.read_to_end(&mut bytes).expect("a pipe can be read");
                }
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let stdout = read(stdout.map(|pipe| Box::new(pipe) as _));
        let stderr = read(stderr.map(|pipe| Box::new(pipe) as _));
        let status = process::wait_for(&mut child);
        Self {
            status: process::code(status),
            stdout: stdout.join().expect("stdout was read"),
            stderr: stderr.join().expect("stderr was read"),
        }
    }

    /// Checks that all went well and gives what it printed.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert_eq!(self.status, 0, "{self:?}");
        assert_eq!(self.stderr, "", "{self:?}");
        &self.stdout
    }

    /// Its JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// As one would see it in a terminal.
impl fmt::Debug for CommandResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "status {}\n--- stdout\n{}\n--- stderr\n{}",
            self.status, self.stdout, self.stderr
        )
    }
}
