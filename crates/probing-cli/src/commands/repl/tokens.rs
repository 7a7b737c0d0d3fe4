//! Tokens of Python, as far as a prompt needs them for colours and open brackets.

/// Every keyword of Python 3.10 and later, soft ones included.
pub(in crate::commands) const KEYWORDS: [&str; 38] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "case", "class",
    "continue", "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if",
    "import", "in", "is", "lambda", "match", "nonlocal", "not", "or", "pass", "raise", "return",
    "try", "type", "while", "with", "yield",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Kind {
    Keyword,
    Name,
    Number,
    Text(StringEnd),
    Comment,
    Open,
    Close,
    NewLine,
    /// Spaces, operators, a backslash.
    Other,
}

/// How a string ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum StringEnd {
    Closed,
    /// Three quotes are open: more may come.
    Open,
    /// With its line, without its quote: for the compiler to complain about.
    Broken,
}

/// All pieces, in order; together they are the text.
pub(in crate::commands) fn tokenize(text: &str) -> impl Iterator<Item = (Kind, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (kind, length) = first(rest)?;
        let (part, after) = rest.split_at(length);
        rest = after;
        Some((kind, part))
    })
}

/// The kind of the first piece, and its length in bytes.
fn first(text: &str) -> Option<(Kind, usize)> {
    let letter = text.chars().next()?;
    let run = |keep: fn(char) -> bool| text.find(|letter| !keep(letter)).unwrap_or(text.len());
    Some(match letter {
        '\n' => (Kind::NewLine, 1),
        '#' => (Kind::Comment, text.find('\n').unwrap_or(text.len())),
        '\'' | '"' => string(text, letter),
        '(' | '[' | '{' => (Kind::Open, 1),
        ')' | ']' | '}' => (Kind::Close, 1),
        '0'..='9' => (
            Kind::Number,
            run(|letter| letter.is_alphanumeric() || matches!(letter, '.' | '_')),
        ),
        letter if letter.is_alphabetic() || letter == '_' => {
            let length = run(|letter| letter.is_alphanumeric() || letter == '_');
            let is_keyword = KEYWORDS.binary_search(&&text[..length]).is_ok();
            (
                if is_keyword {
                    Kind::Keyword
                } else {
                    Kind::Name
                },
                length,
            )
        }
        letter => (Kind::Other, letter.len_utf8()),
    })
}

fn string(text: &str, quote: char) -> (Kind, usize) {
    let triple: String = [quote; 3].iter().collect();
    let is_triple = text.starts_with(&triple);
    let mut at = if is_triple { 3 } else { 1 };
    while let Some(letter) = text[at..].chars().next() {
        match letter {
            '\\' => at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
            _ if is_triple && text[at..].starts_with(&triple) => {
                return (Kind::Text(StringEnd::Closed), at + 3);
            }
            _ if !is_triple && letter == quote => return (Kind::Text(StringEnd::Closed), at + 1),
            '\n' if !is_triple => return (Kind::Text(StringEnd::Broken), at),
            _ => at += letter.len_utf8(),
        }
    }
    let ends = if is_triple {
        StringEnd::Open
    } else {
        StringEnd::Broken
    };
    (Kind::Text(ends), at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, kinds: &[Kind]) {
        let found: Vec<Kind> = tokenize(text)
            .filter(|(_, part)| !part.trim_matches(' ').is_empty())
            .map(|(kind, _)| kind)
            .collect();
        assert_eq!(found, kinds, "{text:?}");
        assert_eq!(
            tokenize(text).map(|(_, part)| part).collect::<String>(),
            text
        );
    }

    #[test]
    fn the_list_of_keywords_is_sorted() {
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn pieces_are_told_apart() {
        let [closed, open, broken] =
            [StringEnd::Closed, StringEnd::Open, StringEnd::Broken].map(Kind::Text);
        check(
            "for x in 'a#b':  # why",
            &[
                Kind::Keyword,
                Kind::Name,
                Kind::Keyword,
                closed,
                Kind::Other,
                Kind::Comment,
            ],
        );
        check(
            "f(1_000.5)\n",
            &[
                Kind::Name,
                Kind::Open,
                Kind::Number,
                Kind::Close,
                Kind::NewLine,
            ],
        );
        check("'''a\n'b'", &[open]);
        check("'''a\n'''", &[closed]);
        check(r"'it\'s'", &[closed]);
        check("'open", &[broken]);
        check("'\\", &[broken]);
        check("größe = \"é\"", &[Kind::Name, Kind::Other, closed]);
    }
}
