//! The path at the cursor, split into the object to read and the prefix to complete.
//!
//! Only names, attributes and literal subscripts are understood. Anything that would have to be run to be known, a call
//! or an operator, ends the path: nothing in the target runs because somebody pressed a key.

use probing_proto::message::completion::{CompletionKind, Step};

/// What stands before the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    /// The way to what is looked into.
    pub(super) steps: Vec<Step>,
    pub(super) look: CompletionKind,
    /// What is typed of the wanted name.
    pub(super) prefix: String,
    /// Where the wanted name begins, a key with its quote: so many bytes before the cursor.
    pub(super) length: usize,
}

impl Path {
    /// Of the name that ends where `text` ends; `None` when there is nothing to look up.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let line_start = text.rfind('\n').map_or(0, |at| at + 1);
        if let Some((open, start, prefix)) = open_subscript(text, line_start) {
            let begin = begin(text, open, line_start);
            return Some(Self {
                steps: steps(&text[begin..open])?,
                look: CompletionKind::Keys,
                prefix,
                length: text.len() - start,
            });
        }
        if ends_in_string(&text[line_start..]) {
            return None;
        }
        let begin = begin(text, text.len(), line_start);
        let name = &text[begin..];
        match text[line_start..begin]
            .split_whitespace()
            .collect::<Vec<_>>()[..]
        {
            ["from", module, "import", ..] => Some(Self {
                steps: vec![Step::Module(module.to_owned())],
                look: CompletionKind::Attributes,
                prefix: name.to_owned(),
                length: name.len(),
            }),
            ["import", ..] | ["from"] => Some(Self {
                steps: Vec::new(),
                look: CompletionKind::Modules,
                prefix: name.to_owned(),
                length: name.len(),
            }),
            _ => Self::of_name(name),
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        let after_dot = name.rfind('.').map_or(0, |dot| dot + 1);
        let prefix = &name[after_dot..];
        if !(prefix.is_empty() || is_identifier(prefix)) {
            return None;
        }
        let steps = match after_dot {
            0 => Vec::new(),
            _ => steps(&name[..after_dot - 1])?,
        };
        Some(Self {
            look: if steps.is_empty() {
                CompletionKind::Names
            } else {
                CompletionKind::Attributes
            },
            steps,
            prefix: prefix.to_owned(),
            length: prefix.len(),
        })
    }
}

/// The steps of a text that is a path and nothing else: `model.layers[0]`.
pub(super) fn steps(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(subscript) = rest.strip_prefix('[').filter(|_| !steps.is_empty()) {
            let (literal, after) = subscript.split_once(']')?;
            steps.push(literal_step(literal.trim())?);
            rest = after;
            continue;
        }
        let name = match rest.strip_prefix('.') {
            Some(name) if !steps.is_empty() => name,
            None if steps.is_empty() => rest,
            _ => return None,
        };
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (name, after) = name.split_at(end);
        if !is_identifier(name) {
            return None;
        }
        steps.push(Step::Name(name.to_owned()));
        rest = after;
    }
    (!steps.is_empty()).then_some(steps)
}

fn literal_step(literal: &str) -> Option<Step> {
    if let Ok(index) = literal.parse() {
        return Some(Step::Index(index));
    }
    let quote = literal.chars().next().filter(|quote| is_quote(*quote))?;
    let text = literal.strip_prefix(quote)?.strip_suffix(quote)?;
    (!text.contains(['\\', quote])).then(|| Step::Key(text.to_owned()))
}

fn is_identifier(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|letter| letter.is_alphabetic() || letter == '_')
        && letters.all(is_name_letter)
}

fn is_name_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn is_quote(letter: char) -> bool {
    matches!(letter, '\'' | '"')
}

/// An open `[` or `["pre` at the end: where the bracket is, where the key begins with its quote, what is typed of it.
fn open_subscript(text: &str, line_start: usize) -> Option<(usize, usize, String)> {
    let open = line_start + text[line_start..].rfind('[')?;
    let inside = &text[open + 1..];
    let key = inside.trim_start();
    let start = text.len() - key.len();
    let prefix = match key.chars().next() {
        None => "",
        Some(quote) if is_quote(quote) => key.strip_prefix(quote)?,
        Some(_) if key.chars().all(is_name_letter) && !is_identifier(key) => key,
        Some(_) => return None,
    };
    let is_after_path = text[..open]
        .chars()
        .next_back()
        .is_some_and(|before| is_name_letter(before) || before == ']');
    let is_open = !prefix.contains(['\'', '"', ']', '\\']);
    (is_after_path && is_open).then(|| (open, start, prefix.to_owned()))
}

/// Where the path that ends at `end` begins.
fn begin(text: &str, end: usize, line_start: usize) -> usize {
    let mut begin = end;
    while let Some(before) = text[line_start..begin].chars().next_back() {
        if is_name_letter(before) || before == '.' {
            begin -= before.len_utf8();
            continue;
        }
        let subscript = (before == ']')
            .then(|| text[line_start..begin].rfind('['))
            .flatten()
            .map(|open| line_start + open);
        match subscript {
            Some(open) if literal_step(text[open + 1..begin - 1].trim()).is_some() => begin = open,
            _ => break,
        }
    }
    begin
}

fn ends_in_string(line: &str) -> bool {
    let mut string = None;
    let mut escaped = false;
    for letter in line.chars() {
        match string {
            _ if escaped => escaped = false,
            Some(_) if letter == '\\' => escaped = true,
            Some(quote) if letter == quote => string = None,
            None if is_quote(letter) => string = Some(letter),
            _ => {}
        }
    }
    string.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Step {
        Step::Name(name.to_owned())
    }

    #[track_caller]
    fn check(text: &str, steps: &[Step], look: CompletionKind, prefix: &str) {
        let path = Path::parse(text).unwrap_or_else(|| panic!("no path: {text}"));
        assert_eq!(
            (path.steps.as_slice(), path.look, path.prefix.as_str()),
            (steps, look, prefix),
            "{text}"
        );
        assert!(text[text.len() - path.length..].ends_with(prefix), "{text}");
    }

    #[test]
    fn names_attributes_and_literal_subscripts_are_understood() {
        check("mod", &[], CompletionKind::Names, "mod");
        check("print(mod", &[], CompletionKind::Names, "mod");
        check("", &[], CompletionKind::Names, "");
        check(
            "x = model.la",
            &[name("model")],
            CompletionKind::Attributes,
            "la",
        );
        check("model.", &[name("model")], CompletionKind::Attributes, "");
        check(
            "model.layers[0].we",
            &[name("model"), name("layers"), Step::Index(0)],
            CompletionKind::Attributes,
            "we",
        );
        check(
            "d['a b'].x",
            &[name("d"), Step::Key("a b".to_owned())],
            CompletionKind::Attributes,
            "x",
        );
        check("if x:\n    mod", &[], CompletionKind::Names, "mod");
    }

    #[test]
    fn keys_are_completed_inside_an_open_bracket() {
        check("d[", &[name("d")], CompletionKind::Keys, "");
        check("d['al", &[name("d")], CompletionKind::Keys, "al");
        check("f(d[\"al", &[name("d")], CompletionKind::Keys, "al");
        check("d[1", &[name("d")], CompletionKind::Keys, "1");
        check(
            "m.d[0][\"k",
            &[name("m"), name("d"), Step::Index(0)],
            CompletionKind::Keys,
            "k",
        );
        assert_eq!(Path::parse("d['al").map(|path| path.length), Some(3));
        // A list's bracket; a name inside brackets.
        check("[mo", &[], CompletionKind::Names, "mo");
        check("d[mo", &[], CompletionKind::Names, "mo");
    }

    #[test]
    fn modules_are_completed_after_import() {
        check("import tor", &[], CompletionKind::Modules, "tor");
        check("import torch.n", &[], CompletionKind::Modules, "torch.n");
        check("from tor", &[], CompletionKind::Modules, "tor");
        let torch = Step::Module("torch.nn".to_owned());
        check(
            "from torch.nn import Lin",
            &[torch],
            CompletionKind::Attributes,
            "Lin",
        );
    }

    #[test]
    fn what_would_have_to_be_run_is_left_alone() {
        for text in [
            "f(x).",
            "(a + b).x",
            "'text'.up",
            "3.re",
            "print('mod",
            "a[b].c",
            "x..y",
        ] {
            assert_eq!(Path::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_whole_path_is_its_steps() {
        assert_eq!(steps("model"), Some(vec![name("model")]));
        assert_eq!(steps("l[0]"), Some(vec![name("l"), Step::Index(0)]));
        for text in ["", "a.", "a[", "a[b]", "1a", "a b", "[0]"] {
            assert_eq!(steps(text), None, "{text}");
        }
    }
}
