//! SQL as far as a prompt must understand it: words, strings, numbers, comments.

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Keyword,
    Name,
    Text,
    Number,
    Comment,
    Other,
}

/// Those that are typed often.
pub(super) const KEYWORDS: [&str; 52] = [
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "CROSS",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "ELSE",
    "END",
    "EXISTS",
    "EXPLAIN",
    "FALSE",
    "FILTER",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INTERVAL",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "RIGHT",
    "SELECT",
    "SHOW",
    "TABLES",
    "THEN",
    "TRUE",
    "UNION",
    "USING",
    "VALUES",
    "WHEN",
    "WHERE",
    "WITH",
    "WITHIN",
];

/// The pieces of a text; together they are all of it.
pub(super) fn tokenize(text: &str) -> Vec<(Kind, &str)> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let (kind, length) = piece(rest, first);
        let (piece, behind) = rest.split_at(length);
        pieces.push((kind, piece));
        rest = behind;
    }
    pieces
}

fn piece(rest: &str, first: char) -> (Kind, usize) {
    let until = |end: &str, from: usize| {
        let found = rest[from..].find(end);
        found.map_or(rest.len(), |at| from + at + end.len())
    };
    let run =
        |is_part: &dyn Fn(char) -> bool| rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
    match first {
        '\'' => (Kind::Text, until("'", 1)),
        '"' => (Kind::Name, until("\"", 1)),
        '-' if rest.starts_with("--") => (Kind::Comment, until("\n", 2)),
        '/' if rest.starts_with("/*") => (Kind::Comment, until("*/", 2)),
        '0'..='9' => (
            Kind::Number,
            run(&|letter| letter.is_ascii_digit() || letter == '.'),
        ),
        letter if is_word(letter) => {
            let length = run(&is_word);
            let is_keyword = KEYWORDS.contains(&rest[..length].to_ascii_uppercase().as_str());
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
    }
}

/// Names with their schemas are one word.
pub(super) fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '.'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_falls_into_its_words() {
        let shown: Vec<(Kind, &str)> = tokenize("select a.b, 'x y' -- c\nfrom \"T\" where 1.5")
            .into_iter()
            .filter(|(_, piece)| !piece.trim().is_empty())
            .collect();
        let expected = [
            (Kind::Keyword, "select"),
            (Kind::Name, "a.b"),
            (Kind::Other, ","),
            (Kind::Text, "'x y'"),
            (Kind::Comment, "-- c\n"),
            (Kind::Keyword, "from"),
            (Kind::Name, "\"T\""),
            (Kind::Keyword, "where"),
            (Kind::Number, "1.5"),
        ];
        assert_eq!(shown, expected);
        for text in ["'open", "\"open", "/* open", "é日'", "-"] {
            let whole: String = tokenize(text).into_iter().map(|(_, piece)| piece).collect();
            assert_eq!(whole, text);
        }
    }
}
