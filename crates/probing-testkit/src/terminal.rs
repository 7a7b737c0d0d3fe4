//! A command that believes to be on a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::process;
use crate::wait_until;

/// What a line editor asks, and what is answered.
const WHERE_IS_THE_CURSOR: &str = "\x1b[6n";
const TOP_LEFT: &[u8] = b"\x1b[1;1R";

/// What it shows is kept, control sequences included.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    ours: OwnedFd,
    shown: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Starts a command with its output on a terminal of 80 columns and 24 lines.
    ///
    /// # Panics
    ///
    /// When there is no terminal to be had.
    pub fn start(command: Command) -> Self {
        Self::begin(command, false)
    }

    /// The same with its input on it, for what somebody types.
    pub fn interactive(command: Command) -> Self {
        Self::begin(command, true)
    }

    fn begin(mut command: Command, is_typed_at: bool) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).expect("a terminal of ours");
        unlockpt(&ours).expect("an open terminal");
        let name = ptsname(&ours, Vec::new()).expect("a terminal with a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = rustix::fs::open(name, flags, Mode::empty()).expect("its other end");
        let copy = theirs.try_clone().expect("a copy of it");
        set_size(&ours, 80, 24);
        let stdin = if is_typed_at {
            Stdio::from(theirs.try_clone().expect("a copy of it"))
        } else {
            Stdio::null()
        };
        let child = command
            .stdin(stdin)
            .stdout(theirs)
            .stderr(copy)
            .spawn()
            .expect("the command starts");
        // The command holds the other end; reading ends when it does.
        drop(command);
        let shown = Arc::<Mutex<String>>::default();
        let mut from = File::from(ours.try_clone().expect("a copy of it"));
        let into = Arc::clone(&shown);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is how Linux tells that nobody is on the other end.
            while let Ok(length @ 1..) = from.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]);
                if is_typed_at && text.contains(WHERE_IS_THE_CURSOR) {
                    // A command that has gone needs no answer.
                    from.write_all(TOP_LEFT).ok();
                }
                into.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&text);
            }
        });
        Self {
            child,
            ours,
            shown,
            reader,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Types this.
    ///
    /// # Panics
    ///
    /// When the terminal is gone.
    pub fn type_text(&self, text: &str) {
        let mut to = File::from(self.ours.try_clone().expect("a copy of it"));
        to.write_all(text.as_bytes())
            .expect("the terminal is there");
    }

    /// All that it has shown so far.
    pub fn shown(&self) -> String {
        self.shown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until it has shown this.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        wait_until(&format!("it shows {text}"), || self.shown().contains(text));
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a pid");
        kill_process(pid, signal).expect("the command can be signalled");
    }

    /// Makes the terminal that large and tells the command.
    pub fn resize(&self, columns: u16, lines: u16) {
        set_size(&self.ours, columns, lines);
        self.signal(Signal::WINCH);
    }

    /// Waits for its end: the status as a shell tells it, and all that it has shown.
    pub fn finish(mut self) -> (i32, String) {
        let status = process::wait_for(&mut self.child);
        self.reader.join().expect("the terminal was read");
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        (process::code(status), shown.clone())
    }
}

fn set_size(terminal: &OwnedFd, columns: u16, lines: u16) {
    let size = Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).expect("a terminal has a size");
}
