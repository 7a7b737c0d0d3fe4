//! A command in a real terminal: what is typed goes through `tmux`, and what is seen is what a person would see.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::wait_until;

/// Far beyond what a prompt waits for an answer.
const AGAIN: Duration = Duration::from_secs(2);

/// A screen of its own, gone with this.
#[derive(Debug)]
pub struct Screen {
    folder: TempDir,
}

impl Screen {
    /// Runs a command on a screen of 100 columns and 40 lines. When it has ended the screen says `ended: STATUS`, and shows
    /// what is typed as any sane terminal does.
    ///
    /// # Panics
    ///
    /// Without `tmux`.
    pub fn start(command: &Command) -> Self {
        let screen = Self {
            folder: tempfile::Builder::new()
                .prefix("t-")
                .tempdir_in("/tmp")
                .expect("a temporary folder"),
        };
        let mut line = String::new();
        for (name, value) in command.get_envs() {
            let name = name.to_string_lossy();
            match value {
                Some(value) => write!(line, "export {name}={}; ", quoted(&value.to_string_lossy())),
                None => write!(line, "unset {name}; "),
            }
            .expect("text can be written");
        }
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        for word in words {
            line.push_str(&quoted(&word.to_string_lossy()));
            line.push(' ');
        }
        line.push_str("; echo \"ended: $?\"; exec cat");
        screen.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "100",
            "-y",
            "40",
            &line,
        ]);
        screen
    }

    /// Types a text, letter by letter.
    pub fn type_text(&self, text: &str) {
        // At the end of a word, tmux takes it for the end of its own command.
        let text = match text.strip_suffix(';') {
            Some(start) => format!("{start}\\;"),
            None => text.to_owned(),
        };
        self.tmux(&["send-keys", "-l", &text]);
    }

    /// Presses a key by its name: `Enter`, `Tab`, `C-c`, `Up`.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Presses Tab until this is on the screen. An answer that comes too late for a person is none, and is asked for again:
    /// on a loaded machine that happens.
    ///
    /// # Panics
    ///
    /// When it never is.
    #[track_caller]
    pub fn complete(&self, text: &str) {
        let mut pressed: Option<Instant> = None;
        self.wait_until(text, |screen| {
            let is_there = screen.contains(text);
            if !is_there && pressed.is_none_or(|pressed| pressed.elapsed() > AGAIN) {
                self.press("Tab");
                pressed = Some(Instant::now());
            }
            is_there
        });
    }

    /// Types texts and presses keys, all in one instant.
    pub fn type_at_once(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a text and presses Enter.
    pub fn enter(&self, text: &str) {
        self.type_text(text);
        self.press("Enter");
    }

    /// As a terminal pastes.
    pub fn paste(&self, text: &str) {
        self.tmux(&["set-buffer", text]);
        self.tmux(&["paste-buffer", "-p"]);
    }

    pub fn resize(&self, columns: u16, lines: u16) {
        let (columns, lines) = (columns.to_string(), lines.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &lines]);
    }

    /// What is on the screen now, without the empty lines below.
    pub fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).trim_end().to_owned()
    }

    /// Waits until this is on the screen.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    /// Waits until the screen is like that.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut(&str) -> bool) {
        let mut last = String::new();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(&format!("the screen shows {what:?}"), || {
                last = self.text();
                is_so(&last)
            });
        }));
        assert!(seen.is_ok(), "the screen never showed {what:?}:\n{last}");
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let ran = Command::new("tmux")
            .arg("-S")
            .arg(self.socket())
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env_remove("TMUX")
            .output()
            .expect("tmux is installed");
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("tmux")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
