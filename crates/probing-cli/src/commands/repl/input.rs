//! What was typed: code, a question about a name, or a command of the prompt; and whether more has to come.

use crate::commands::repl::magic::Magic;
use crate::commands::repl::path;
use crate::commands::repl::tokens::{self, Kind, StringEnd};

/// One input, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    Empty,
    Code(String),
    /// `?name` or `name?`
    Question(String),
    Magic(Magic),
    /// A `%` that means nothing: what to say about it.
    Unknown(String),
}

impl Input {
    pub(super) fn of(text: &str) -> Self {
        let words = text.trim();
        if words.is_empty() {
            return Self::Empty;
        }
        if let Some(rest) = words.strip_prefix('%') {
            return Magic::parse(rest).map_or_else(Self::Unknown, Self::Magic);
        }
        let name = words
            .strip_prefix('?')
            .or_else(|| words.strip_suffix('?'))
            .map(|name| name.trim_matches('?').trim());
        match name {
            Some(name) if is_path(name) => Self::Question(name.to_owned()),
            _ => Self::Code(text.trim_end_matches([' ', '\t']).to_owned()),
        }
    }
}

/// `model.layers[0].weight`
fn is_path(text: &str) -> bool {
    path::steps(text).is_some()
}

/// Whether this can be run, or the editor has to give another line.
///
/// As at Python's own prompt: an open bracket or string and a backslash at the end of a line ask for more, and a block
/// ends with an empty line.
pub(in crate::commands) fn is_complete(text: &str) -> bool {
    if text.trim_start().starts_with(['%', '?']) {
        return true;
    }
    let shape = Shape::of(text);
    let last = text.split('\n').next_back().unwrap_or("");
    match shape.rest {
        Continuation::Needed => false,
        Continuation::Hopeless => true,
        Continuation::Nothing => !shape.has_block || last.trim().is_empty(),
    }
}

/// Spaces with which the line after `text` begins.
pub(super) fn indentation(text: &str) -> usize {
    let shape = Shape::of(text);
    let line = text
        .split('\n')
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("");
    let own = line.len() - line.trim_start_matches(' ').len();
    match line.split_whitespace().next() {
        _ if shape.rest == Continuation::Needed => own,
        _ if shape.ends_with_colon => own + 4,
        Some("return" | "raise" | "pass" | "break" | "continue") => own.saturating_sub(4),
        _ => own,
    }
}

/// What has to follow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Continuation {
    #[default]
    Nothing,
    /// A bracket, a string or a line is not closed.
    Needed,
    /// A string was not closed on its line: nothing can make that right.
    Hopeless,
}

/// What brackets, strings and colons say.
#[derive(Debug, Default)]
struct Shape {
    rest: Continuation,
    /// A line opens a block, or a decorator waits for one.
    has_block: bool,
    /// The last line opens a block.
    ends_with_colon: bool,
}

impl Shape {
    fn of(text: &str) -> Self {
        let mut shape = Self::default();
        let (mut depth, mut first, mut last) = (0_usize, None, "");
        let (mut is_open, mut is_broken) = (false, false);
        for (kind, part) in tokens::tokenize(text) {
            match kind {
                Kind::Open => depth += 1,
                Kind::Close => depth = depth.saturating_sub(1),
                Kind::Text(StringEnd::Open) => is_open = true,
                Kind::Text(StringEnd::Broken) => is_broken = true,
                _ => {}
            }
            // A slice's or a lambda's colon has something behind it.
            shape.has_block |= kind == Kind::NewLine && depth == 0 && last == ":";
            if !matches!(kind, Kind::Comment | Kind::NewLine) && part != " " {
                first = first.or(Some(part));
                last = part;
            }
        }
        shape.ends_with_colon = depth == 0 && last == ":";
        is_open |= depth > 0 || text.trim_end_matches('\n').ends_with('\\');
        shape.rest = match () {
            () if is_broken => Continuation::Hopeless,
            () if is_open => Continuation::Needed,
            () => Continuation::Nothing,
        };
        shape.has_block |=
            shape.ends_with_colon || first.is_some_and(|word| BLOCKS.contains(&word));
        shape
    }
}

/// What opens a block when a text begins with it.
const BLOCKS: [&str; 9] = [
    "@", "async", "class", "def", "for", "if", "try", "while", "with",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_complete_when_nothing_is_open() {
        for text in [
            "x = 1",
            "f(1, 2)",
            "x = [1,\n 2]",
            "'a:'",
            "d = {'a': 1}",
            "x[1:]",
            "lambda x: x",
            "print('unclosed",
            "# if x:",
            "s = '''a\nb'''",
            "%bt --all",
            "?model",
            "",
        ] {
            assert!(is_complete(text), "{text:?}");
        }
        for text in [
            "f(1,",
            "x = '''a",
            "x = \\",
            "if x:",
            "if x: y()",
            "for i in x:\n    print(i)",
            "@cache",
            "@cache\ndef f():\n    pass",
            "async def f():",
            "x = [\n",
            "with a:\n    b\n    c",
        ] {
            assert!(!is_complete(text), "{text:?}");
        }
    }

    #[test]
    fn an_empty_line_ends_a_block() {
        assert!(is_complete("for i in x:\n    print(i)\n"));
        assert!(is_complete("for i in x:\n    print(i)\n    "));
        assert!(is_complete("if x: y()\n"));
        assert!(!is_complete("def f(\n"));
    }

    #[test]
    fn the_next_line_is_indented_like_a_person_would() {
        assert_eq!(indentation("if x:"), 4);
        assert_eq!(indentation("if x:  # why\n"), 4);
        assert_eq!(indentation("for i in x:\n    if i:"), 8);
        assert_eq!(indentation("def f():\n    return 1"), 0);
        assert_eq!(indentation("def f():\n    x = 1"), 4);
        assert_eq!(indentation("x = f(a,\n      b,"), 6);
    }

    #[test]
    fn questions_and_commands_are_told_from_code() {
        let question = |name: &str| Input::Question(name.to_owned());
        assert_eq!(Input::of("?model.fc"), question("model.fc"));
        assert_eq!(Input::of(" model? "), question("model"));
        assert_eq!(Input::of("model??"), question("model"));
        assert_eq!(Input::of("layers[0]?"), question("layers[0]"));
        assert_eq!(Input::of("x = '?'"), Input::Code("x = '?'".to_owned()));
        assert_eq!(Input::of("f(x)?"), Input::Code("f(x)?".to_owned()));
        assert_eq!(Input::of("  "), Input::Empty);
        assert!(matches!(Input::of("%bt"), Input::Magic(_)));
        assert!(matches!(Input::of("%nonsense"), Input::Unknown(_)));
    }
}
