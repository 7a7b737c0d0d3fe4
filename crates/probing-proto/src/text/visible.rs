//! The visible form of characters that a terminal obeys instead of showing them.
//!
//! Names, values, errors and hints come from targets and from remote ends: they are data, and may contain escape
//! sequences. Before a terminal can see them, each character of [`is_active`] is written as `\x1b` or `\u202e`.

use std::borrow::Cow;

/// Whether a terminal may obey this character: control characters (C0, DEL, C1), separators of lines and paragraphs,
/// and those that turn the direction of text around.
pub const fn is_active(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

/// On one line: also line breaks and tabs are shown.
pub fn line(text: &str) -> Cow<'_, str> {
    shown(text, is_active)
}

/// Line breaks and tabs stay what they are.
pub fn lines(text: &str) -> Cow<'_, str> {
    shown(text, |character| {
        is_active(character) && !matches!(character, '\n' | '\t')
    })
}

/// As the name of a file in a folder, whatever was said: no path, not hidden, nothing that a terminal obeys.
pub fn file_name(text: &str) -> String {
    let name = line(text).replace('/', "-");
    match name.strip_prefix('.') {
        Some(rest) => format!("-{rest}"),
        None if name.is_empty() => "-".to_owned(),
        None => name,
    }
}

/// JSON with nothing but visible characters and line breaks in it. Whoever parses it gets what `json` meant.
pub fn json(json: String) -> String {
    if json.bytes().all(is_plain) {
        return json;
    }
    let mut shown = Vec::with_capacity(json.len());
    let mut escaper = Escaper::new(Notation::Json);
    escaper.feed(json.as_bytes(), &mut shown);
    escaper.finish(&mut shown);
    String::from_utf8(shown).unwrap_or(json)
}

fn shown(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    let Some(first) = text.find(&is_hidden) else {
        return Cow::Borrowed(text);
    };
    let mut shown = text[..first].to_owned();
    for character in text[first..].chars() {
        if is_hidden(character) {
            shown.push_str(&escape(character));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// `\x1b`, `\u202e`
fn escape(character: char) -> String {
    match u32::from(character) {
        code @ 0..=0xff => format!("\\x{code:02x}"),
        code => format!("\\u{code:04x}"),
    }
}

/// How an [`Escaper`] writes what must not stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// For people. What a backslash in it means is not recoverable.
    Text,
    /// For CSV: a backslash that would read as one of our escapes is written as `\x5c`, so that every `\xNN` and
    /// `\uNNNN` stands for a character.
    Csv,
    /// For JSON, which has escapes of its own.
    Json,
}

/// Makes bytes visible as they come, wherever they were cut into pieces.
#[derive(Debug)]
pub struct Escaper {
    notation: Notation,
    /// The beginning of something whose end has not come yet.
    held: Vec<u8>,
}

impl Escaper {
    pub const fn new(notation: Notation) -> Self {
        Self {
            notation,
            held: Vec::new(),
        }
    }

    /// Whether these bytes stay as they are, all of them and now.
    pub fn is_idle(&self, bytes: &[u8]) -> bool {
        self.held.is_empty() && bytes.iter().all(|byte| self.keeps(*byte))
    }

    /// Appends the visible form of `bytes`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.held.is_empty() {
            let done = self.pass(bytes, out);
            self.held.extend_from_slice(&bytes[done..]);
            return;
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let done = self.pass(&all, out);
        all.drain(..done);
        self.held = all;
    }

    /// Appends what was held back: nothing comes after it.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        for byte in std::mem::take(&mut self.held) {
            if byte.is_ascii() {
                out.push(byte);
            } else {
                self.add_invalid(byte, out);
            }
        }
    }

    fn keeps(&self, byte: u8) -> bool {
        is_plain(byte) && (byte != b'\\' || self.notation != Notation::Csv)
    }

    /// How many bytes were passed on.
    fn pass(&self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let plain = rest.iter().position(|byte| !self.keeps(*byte));
            let plain = plain.unwrap_or(rest.len());
            out.extend_from_slice(&rest[..plain]);
            let rest = &rest[plain..];
            at += plain;
            if rest.first() == Some(&b'\\') {
                match reads_as_escape(&rest[1..]) {
                    Some(true) => out.extend_from_slice(escape('\\').as_bytes()),
                    Some(false) => out.push(b'\\'),
                    None => return at,
                }
                at += 1;
            } else if !rest.is_empty() {
                match first_character(rest) {
                    First::Character(character) => {
                        self.add(character, out);
                        at += character.len_utf8();
                    }
                    First::Invalid => {
                        self.add_invalid(rest[0], out);
                        at += 1;
                    }
                    First::Incomplete => return at,
                }
            }
        }
        at
    }

    fn add(&self, character: char, out: &mut Vec<u8>) {
        if !is_active(character) {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        } else if self.notation == Notation::Json {
            out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes());
        } else {
            out.extend_from_slice(escape(character).as_bytes());
        }
    }

    fn add_invalid(&self, byte: u8, out: &mut Vec<u8>) {
        if self.notation == Notation::Json {
            out.extend_from_slice("\u{fffd}".as_bytes());
        } else {
            out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        }
    }
}

/// Shown as it is by every terminal, or a line break or tab.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\n' | b'\t')
}

/// Whether what follows a backslash makes it one of our escapes; `None` while too little of it is known.
fn reads_as_escape(after: &[u8]) -> Option<bool> {
    let (kind, digits) = after.split_first()?;
    let length = match kind {
        b'x' => 2,
        b'u' => 4,
        _ => return Some(false),
    };
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let known = &digits[..digits.len().min(length)];
    if !known.iter().all(is_digit) {
        return Some(false);
    }
    (known.len() == length).then_some(true)
}

enum First {
    Character(char),
    Invalid,
    Incomplete,
}

fn first_character(bytes: &[u8]) -> First {
    let bytes = &bytes[..bytes.len().min(4)];
    let (valid, error_length) = match str::from_utf8(bytes) {
        Ok(_) => (bytes.len(), None),
        Err(error) => (error.valid_up_to(), error.error_len()),
    };
    let valid = str::from_utf8(&bytes[..valid]).unwrap_or_default();
    match (valid.chars().next(), error_length) {
        (Some(character), _) => First::Character(character),
        (None, Some(_)) => First::Invalid,
        (None, None) => First::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(notation: Notation, pieces: &[&[u8]]) -> String {
        let (mut escaper, mut out) = (Escaper::new(notation), Vec::new());
        for piece in pieces {
            escaper.feed(piece, &mut out);
        }
        escaper.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// What docs/output.md tells readers of CSV to do.
    fn recovered(csv: &str) -> String {
        let (mut text, mut rest) = (String::new(), csv);
        while let Some(at) = rest.find('\\') {
            text.push_str(&rest[..at]);
            rest = &rest[at..];
            let length = if rest.starts_with("\\x") { 4 } else { 6 };
            if reads_as_escape(&rest.as_bytes()[1..]) == Some(true) {
                let code = u32::from_str_radix(&rest[2..length], 16).unwrap();
                text.push(char::from_u32(code).unwrap());
                rest = &rest[length..];
            } else {
                text.push('\\');
                rest = &rest[1..];
            }
        }
        text + rest
    }

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        assert_eq!(line("plain ünï 日本 🙂"), "plain ünï 日本 🙂");
        assert_eq!(
            line("a\x1b[31m\r\n\tb\x7f"),
            "a\\x1b[31m\\x0d\\x0a\\x09b\\x7f"
        );
        assert_eq!(lines("a\n\tb\r"), "a\n\tb\\x0d");
        assert_eq!(
            line("\u{9b}2J\u{202e}\u{2066}\u{2028}"),
            "\\x9b2J\\u202e\\u2066\\u2028"
        );
        let text = escaped(Notation::Text, &[b"a\x1b[2J\x9b\xff\n"]);
        assert_eq!(text, "a\\x1b[2J\\x9b\\xff\n");
        // Half a letter at the end.
        assert_eq!(escaped(Notation::Text, &[b"a\xe2\x80"]), "a\\xe2\\x80");
    }

    #[test]
    fn a_name_of_a_file_is_no_path() {
        assert_eq!(file_name("python.train"), "python.train");
        assert_eq!(file_name("../../etc/passwd"), "-.-..-etc-passwd");
        assert_eq!(file_name("a\x1b\nb"), "a\\x1b\\x0ab");
        assert_eq!(
            (file_name(""), file_name("..")),
            ("-".to_owned(), "-.".to_owned())
        );
    }

    #[test]
    fn json_means_what_it_meant() {
        let told = "\"a\u{7f}\u{9b}\u{202e}\\\\x1b\"".to_owned();
        assert_eq!(json(told), r#""a\u007f\u009b\u202e\\x1b""#);
        assert_eq!(json("[\n1]".to_owned()), "[\n1]");
    }

    #[test]
    fn an_escape_that_was_in_the_data_is_told_from_ours() {
        assert_eq!(
            escaped(Notation::Csv, &[b"\x1b,\\x1b,\\n,C:\\x\n"]),
            "\\x1b,\\x5cx1b,\\n,C:\\x\n"
        );
    }

    proptest! {
        #[test]
        fn csv_is_recoverable_however_it_is_cut(
            text in "(\\PC|[\\\\xu0-9a-f]|\\x1b|\u{9b}|\u{202e}|[\r\n\t])*",
            cut in 0_usize..64,
        ) {
            let (first, second) = text.as_bytes().split_at(cut.min(text.len()));
            let csv = escaped(Notation::Csv, &[first, second]);
            prop_assert_eq!(&csv, &escaped(Notation::Csv, &[text.as_bytes()]));
            prop_assert!(csv.chars().all(|letter| matches!(letter, '\n' | '\t') || !is_active(letter)));
            prop_assert_eq!(recovered(&csv), text);
        }

        #[test]
        fn no_bytes_stay_active(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..12), 0..6)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            for notation in [Notation::Text, Notation::Csv, Notation::Json] {
                let text = escaped(notation, &pieces);
                prop_assert!(text.chars().all(|letter| matches!(letter, '\n' | '\t') || !is_active(letter)));
            }
        }
    }
}
