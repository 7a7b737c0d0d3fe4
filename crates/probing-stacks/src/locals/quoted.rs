//! Text and bytes between quotes, as `repr` writes them.

use crate::python::objects::text::Characters;

/// Writes the first characters of a `str` between quotes, and how many there are if not all are here.
pub(super) fn push_text(written: &mut String, characters: &Characters<'_>) {
    let has = |wanted: char| characters.first().any(|value| value == wanted as u32);
    let plain = characters.as_ascii().filter(|text| is_plain(text));
    let quote = match plain {
        None if has('\'') && !has('"') => '"',
        _ => '\'',
    };
    written.push(quote);
    match plain {
        Some(text) => written.push_str(text),
        None => push_each(written, characters.first(), quote),
    }
    end(written, quote, characters.len(), characters.count);
}

/// Whether all of it stands for itself.
fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b' '..=b'~') && byte != b'\'' && byte != b'\\')
}

fn push_each(written: &mut String, characters: impl Iterator<Item = u32>, quote: char) {
    for value in characters {
        match char::from_u32(value) {
            Some(char) => push(written, char, quote),
            // Half of a pair, or a byte of a file's name that is no text.
            None => written.push_str(&format!("\\u{value:04x}")),
        }
    }
}

fn push(written: &mut String, char: char, quote: char) {
    match char {
        '\n' => written.push_str("\\n"),
        '\r' => written.push_str("\\r"),
        '\t' => written.push_str("\\t"),
        '\\' => written.push_str("\\\\"),
        _ if char == quote => written.extend(['\\', char]),
        ' '..='~' => written.push(char),
        _ if is_printable(char) => written.push(char),
        _ => match char as u32 {
            value @ ..=0xff => written.push_str(&format!("\\x{value:02x}")),
            value @ ..=0xffff => written.push_str(&format!("\\u{value:04x}")),
            value => written.push_str(&format!("\\U{value:08x}")),
        },
    }
}

/// As Python sees it, but for characters that are younger than either.
fn is_printable(char: char) -> bool {
    // Marks that go over the letter before them are escaped by Rust at the start of a text only.
    let after_letter = format!("a{char}");
    let is_escaped = after_letter.escape_debug().count() > 2;
    !char.is_whitespace() && !char.is_control() && !is_escaped
}

/// Writes the first of a `bytes`.
pub(super) fn push_bytes(written: &mut String, first: &[u8], count: usize) {
    let quote = if first.contains(&b'\'') && !first.contains(&b'"') {
        '"'
    } else {
        '\''
    };
    written.extend(['b', quote]);
    for byte in first {
        match byte {
            0x20..=0x7e | b'\n' | b'\r' | b'\t' => push(written, char::from(*byte), quote),
            _ => written.push_str(&format!("\\x{byte:02x}")),
        }
    }
    end(written, quote, first.len(), count);
}

fn end(written: &mut String, quote: char, shown: usize, count: usize) {
    if shown < count {
        written.push('…');
    }
    written.push(quote);
    if shown < count {
        written.push_str(&format!(" ({} more)", count - shown));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(characters: &Characters<'_>) -> String {
        let mut written = String::new();
        push_text(&mut written, characters);
        written
    }

    fn bytes(first: &[u8], count: usize) -> String {
        let mut written = String::new();
        push_bytes(&mut written, first, count);
        written
    }

    fn check(content: &'static str, expected: &str) {
        let first: Vec<u32> = content.chars().map(|char| char as u32).collect();
        assert_eq!(text(&Characters::of(&first, 0)), expected);
        if content.is_ascii() {
            assert_eq!(text(&Characters::narrow(content.as_bytes())), expected);
        }
    }

    #[test]
    fn text_is_quoted_as_by_python() {
        check("", "''");
        check("level 7 \"~", "'level 7 \"~'");
        check("it's", r#""it's""#);
        check(r#"it's "so""#, r#"'it\'s "so"'"#);
        check("a\n\t\\\u{0}\u{7f}\u{a0}", r"'a\n\t\\\x00\x7f\xa0'");
        check("é名😀\u{301}", "'é名😀\u{301}'");
        check(
            "\u{200b}\u{2028}\u{e000}\u{10ffff}",
            r"'\u200b\u2028\ue000\U0010ffff'",
        );
    }

    #[test]
    fn what_is_cut_says_how_much() {
        let cut = Characters::of(&[97, 0xdc80], 3);
        assert_eq!(text(&cut), r"'a\udc80…' (3 more)");
        assert_eq!(bytes(b"a'\xff", 3), r#"b"a'\xff""#);
        assert_eq!(bytes(b"", 7), "b'…' (7 more)");
    }
}
