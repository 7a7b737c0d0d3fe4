//! The boundaries between SQL statements.

/// The statements of a text, without the `;` between them. Those in strings, names and comments are none.
pub(super) fn split(text: &str) -> Vec<&str> {
    let mut statements = Vec::new();
    let mut start = 0;
    for end in ends(text) {
        statements.push(&text[start..end]);
        start = end + 1;
    }
    statements.push(&text[start..]);
    statements.retain(|statement| !is_blank(statement));
    statements
}

/// Whether the text ends where a statement does: it waits for nothing more.
pub(super) fn is_complete(text: &str) -> bool {
    let last = text.trim_end();
    last.ends_with(';') && ends(text).last() == Some(&(last.len() - 1))
}

/// Nothing but spaces and comments.
fn is_blank(text: &str) -> bool {
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        rest = match comment(rest) {
            0 => return false,
            length => rest[length..].trim_start(),
        };
    }
    true
}

/// The places of each `;` that ends a statement.
fn ends(text: &str) -> Vec<usize> {
    let (mut ends, mut at) = (Vec::new(), 0);
    while let Some(letter) = text[at..].chars().next() {
        let rest = &text[at..];
        at += match letter {
            // A doubled quote is two strings that touch, which is the same here.
            '\'' | '"' => rest[1..].find(letter).map_or(rest.len(), |end| end + 2),
            ';' => {
                ends.push(at);
                1
            }
            _ => comment(rest).max(letter.len_utf8()),
        };
    }
    ends
}

/// The length of the comment that the text begins with.
fn comment(text: &str) -> usize {
    let end = |end: &str| text.find(end).map_or(text.len(), |at| at + end.len());
    if text.starts_with("--") {
        end("\n")
    } else if text.starts_with("/*") {
        end("*/")
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_with_a_semicolon_outside_of_strings_and_comments() {
        let check = |text: &str, statements: &[&str]| assert_eq!(split(text), statements, "{text}");
        check("", &[]);
        check(" ;; ", &[]);
        check("select 1", &["select 1"]);
        check("select 1;\nselect 2;\n", &["select 1", "\nselect 2"]);
        check("select ';', \"a;b\"; x", &["select ';', \"a;b\"", " x"]);
        check("select 'it''s;'; x", &["select 'it''s;'", " x"]);
        check(
            "-- a;b\nselect 1 /* ; */; -- end",
            &["-- a;b\nselect 1 /* ; */"],
        );
        check("select 'open; x", &["select 'open; x"]);
        check("é;日", &["é", "日"]);
    }

    #[test]
    fn a_statement_is_complete_behind_its_semicolon() {
        for text in ["select 1;", "select 1;\n", ";", "a; b;"] {
            assert!(is_complete(text), "{text}");
        }
        for text in [
            "",
            "select 1",
            "select ';",
            "select 1; -- x",
            "a; b",
            "-- x;",
        ] {
            assert!(!is_complete(text), "{text}");
        }
    }
}
