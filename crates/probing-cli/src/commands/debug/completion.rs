//! What Tab offers at a stop: the debugger's commands, and live names of the frame.

use reedline::{Completer, Suggestion};

use crate::commands::debug::commands;
use crate::commands::repl::completion::{LiveNames, suggestion};

pub(super) struct DebuggerNames(pub(super) LiveNames);

impl Completer for DebuggerNames {
    fn complete(&mut self, line: &str, pos: usize) -> Vec<Suggestion> {
        let text = &line[..pos];
        let is_first = text
            .chars()
            .all(|letter| letter.is_alphanumeric() || letter == '_');
        let commands = commands::names(text)
            .filter(|_| is_first)
            .map(|(name, does)| suggestion(name, 0, pos, Some(does)));
        let mut all: Vec<Suggestion> = commands.collect();
        if !text.trim().is_empty() {
            all.extend(self.0.complete(line, pos));
        }
        all
    }
}
