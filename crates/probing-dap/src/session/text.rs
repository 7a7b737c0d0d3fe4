//! Text for the editor: completions of what is typed, and source that it cannot read itself.

use probing_proto::dap::arguments::{Completions, SourceText};
use probing_proto::dap::body;
use probing_proto::message::Call;
use probing_proto::message::breakpoints::Source;
use probing_proto::message::completion::{
    Complete, Completion, CompletionKind, Scope, Step as NameStep,
};

use super::code::is_name;
use super::probes::Purpose;
use super::values::{Site, VALUES_TIMEOUT};
use super::{Answer, Handled, Link, Refusal, Reply, Session, to_value};

/// Lines of a file in one answer.
const MAX_SOURCE_LINES: u32 = 200_000;

impl Session {
    pub(super) fn completions(&mut self, reply: &Reply, arguments: &Completions) -> Handled {
        let (site, scope) = match arguments.frame_id {
            Some(id) => {
                let frame = self.frame(id)?;
                let scope = Scope {
                    thread: Some(frame.thread.to_string()),
                    frame: Some(frame.depth),
                };
                (Site::of_frame(frame), scope)
            }
            None => (self.somewhere()?, Scope::default()),
        };
        let line = usize::try_from(arguments.line.unwrap_or(1)).unwrap_or(1);
        let text = arguments
            .text
            .lines()
            .nth(line.saturating_sub(1))
            .unwrap_or_default();
        let until = usize::try_from(arguments.column.max(1) - 1).unwrap_or(0);
        let typed: String = text.chars().take(until).collect();
        let Some((steps, prefix)) = path_at_end(&typed) else {
            let none = body::Completions {
                targets: Vec::new(),
            };
            return Ok(Answer::Now(to_value(&none)));
        };
        let length = prefix.chars().count() as i64;
        let look = if steps.is_empty() {
            CompletionKind::Names
        } else {
            CompletionKind::Attributes
        };
        let call = Call::Complete(Complete {
            steps,
            look,
            prefix,
            scope,
        });
        let purpose = Purpose::Complete {
            reply: reply.clone(),
            start: until as i64 - length,
            length,
        };
        let limit = Some(VALUES_TIMEOUT);
        self.ask_within(site.target, Link::Support, call, purpose, limit);
        Ok(Answer::Later)
    }

    pub(super) fn completions_came(
        &mut self,
        reply: &Reply,
        (start, length): (i64, i64),
        completions: Vec<Completion>,
    ) {
        let kind = |kind: &str| match kind {
            "function" | "method" | "builtin_function_or_method" => "function",
            "class" => "class",
            "module" => "module",
            "property" => "property",
            _ => "variable",
        };
        let targets = completions.into_iter().map(|it| body::Completion {
            kind: kind(&it.kind),
            label: it.text,
            start,
            length,
        });
        let targets = targets.collect();
        self.answer(reply, to_value(&body::Completions { targets }));
    }

    pub(super) fn source(&mut self, reply: &Reply, arguments: &SourceText) -> Handled {
        let reference = match &arguments.source {
            Some(source) => source
                .source_reference
                .unwrap_or(arguments.source_reference),
            None => arguments.source_reference,
        };
        let at = usize::try_from(reference - 1).ok();
        let known = at.and_then(|at| self.sources.get(at)).cloned();
        let (target, file) = known.ok_or_else(|| Refusal::new("no source has this reference"))?;
        let call = Call::Source {
            file,
            first: 1,
            count: MAX_SOURCE_LINES,
        };
        let purpose = Purpose::Source {
            reply: reply.clone(),
        };
        self.ask_within(target, Link::Support, call, purpose, Some(VALUES_TIMEOUT));
        Ok(Answer::Later)
    }

    pub(super) fn source_came(&mut self, reply: &Reply, source: Source) {
        let mut content = source.lines.join("\n");
        content.push('\n');
        let body = body::SourceText {
            content,
            mime_type: "text/x-python",
        };
        self.answer(reply, to_value(&body));
    }
}

/// The names at the end of what was typed, and the part of the last one: `model.layers.we`.
fn path_at_end(typed: &str) -> Option<(Vec<NameStep>, String)> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '.';
    let begin = typed
        .char_indices()
        .rev()
        .take_while(|(_, letter)| is_part(*letter))
        .last()
        .map_or(typed.len(), |(at, _)| at);
    // What comes before a dot would have to be evaluated.
    let mut names: Vec<&str> = typed[begin..].split('.').collect();
    let prefix = names.pop()?.to_owned();
    let is_number = |name: &&str| name.starts_with(|letter: char| letter.is_ascii_digit());
    if names.iter().any(|name| !is_name(name)) || is_number(&prefix.as_str()) {
        return None;
    }
    let steps = names
        .into_iter()
        .map(|name| NameStep::Name(name.to_owned()));
    Some((steps.collect(), prefix))
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn names_are_completed_by_attributes_and_what_needs_code_is_not() {
        let path = |typed: &str| {
            path_at_end(typed).map(|(steps, prefix)| {
                let name = |step| match step {
                    NameStep::Name(name) => name,
                    step => panic!("{step:?}"),
                };
                let mut names: Vec<String> = steps.into_iter().map(name).collect();
                names.push(prefix);
                names
            })
        };
        let names = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(path("lo"), names(&["lo"]));
        assert_eq!(path("f(model.layers.we"), names(&["model", "layers", "we"]));
        assert_eq!(path("x = a."), names(&["a", ""]));
        assert_eq!(path(""), names(&[""]));
        assert_eq!(path("f().we"), None);
        assert_eq!(path("1.5"), None);
        assert_eq!(path("größe.x"), names(&["größe", "x"]));
    }
}
