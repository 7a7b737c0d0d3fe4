//! What Tab offers: names of live objects in the target, keywords, and the prompt's own commands.

use std::sync::Arc;
use std::time::Duration;

use probing_proto::message::completion::{Complete, CompletionKind};
use reedline::{Completer, Span, Suggestion};

use crate::commands::repl::magic::Magic;
use crate::commands::repl::path::Path;
use crate::commands::repl::session::Link;
use crate::commands::repl::tokens::KEYWORDS;

/// Somebody waits with a finger on the key.
const BUDGET: Duration = Duration::from_millis(200);
const INDENT: &str = "    ";

/// Asks the target.
#[derive(Debug)]
pub(in crate::commands) struct LiveNames {
    pub(in crate::commands) link: Arc<Link>,
}

impl Completer for LiveNames {
    fn complete(&mut self, line: &str, pos: usize) -> Vec<Suggestion> {
        let text = &line[..pos];
        let this_line = text.rsplit('\n').next().unwrap_or("");
        if this_line.trim().is_empty() {
            return vec![suggestion(INDENT, pos, pos, None)];
        }
        if let Some(prefix) = text.strip_prefix('%')
            && !prefix.contains(' ')
        {
            return Magic::names(prefix)
                .map(|(name, does)| suggestion(name, 1, pos, Some(does)))
                .collect();
        }
        let Some(path) = Path::parse(text.strip_prefix('?').unwrap_or(text)) else {
            return Vec::new();
        };
        self.of_path(path, pos)
    }
}

impl LiveNames {
    fn of_path(&self, path: Path, pos: usize) -> Vec<Suggestion> {
        let start = pos - path.length;
        let closing = if path.look == CompletionKind::Keys {
            "]"
        } else {
            ""
        };
        let keywords = KEYWORDS
            .iter()
            .filter(|word| {
                path.look == CompletionKind::Names
                    && !path.prefix.is_empty()
                    && word.starts_with(&path.prefix)
            })
            .map(|word| suggestion(word, start, pos, Some("keyword")));
        let wanted = Complete {
            steps: path.steps.clone(),
            look: path.look,
            prefix: path.prefix.clone(),
            scope: self.link.scope(),
        };
        let names = self.link.complete(wanted, BUDGET);
        let names = names.iter().map(|name| {
            suggestion(
                &format!("{}{closing}", name.text),
                start,
                pos,
                Some(&name.kind),
            )
        });
        names.chain(keywords).collect()
    }
}

pub(in crate::commands) fn suggestion(
    value: &str,
    start: usize,
    end: usize,
    description: Option<&str>,
) -> Suggestion {
    Suggestion {
        value: value.to_owned(),
        description: description.map(str::to_owned),
        span: Span::new(start, end),
        ..Suggestion::default()
    }
}
