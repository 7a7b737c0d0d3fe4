//! What a terminal would obey of what a command printed.

/// As in tests/targets/hostile.py: a style, the window's title, C1, DEL, directions, separators, moves, a forged line.
pub const EVIL: &str =
    "\x1b[35;5m\x1b]0;evil\x07\u{9b}7m\x7f\u{202e}\u{2066}\u{2028}\r\u{8}\nFORGED <script>&";
/// How its beginning is shown.
pub const EVIL_SHOWN: &str = r"\x1b[35;5m\x1b]0;evil\x07\x9b7m\x7f\u202e\u2066\u2028\x0d\x08";

/// Sequences of the command's own, and what a terminal makes of a line feed.
const OURS: &[&str] = &[
    "\r\n",
    "\n",
    "\t",
    "\x1b[0m",
    "\x1b[1m",
    "\x1b[2m",
    "\x1b[m",
    "\x1b[31m",
    "\x1b[32m",
    "\x1b[33m",
    "\x1b[34m",
    "\x1b[35m",
    "\x1b[36m",
    "\x1b[4m",
    "\x1b[?1049h",
    "\x1b[?1049l",
    "\x1b[?25l",
    "\x1b[?25h",
    "\x1b[H",
    "\x1b[K",
    "\x1b[E",
    "\x1b[J",
    "\x1b[G",
    "\x1b[2K",
];

/// Characters that a terminal obeys and that are not the command's own, with what follows them.
pub fn obeyed(text: &str) -> Vec<String> {
    let mut obeyed = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(ours) = OURS.iter().find(|ours| rest.starts_with(**ours)) {
            rest = &rest[ours.len()..];
            continue;
        }
        let is_unseen = matches!(first, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if first.is_control() || is_unseen {
            obeyed.push(rest.chars().take(20).collect());
        }
        rest = &rest[first.len_utf8()..];
    }
    obeyed
}

/// What of [`EVIL`] itself is in a text, whatever else is: for prompts, whose line editor moves the cursor in many ways.
pub fn evil_in(text: &str) -> Option<&'static str> {
    const PARTS: [&str; 7] = [
        "\x1b[35;5m",
        "\x1b]0;",
        "\x07",
        "\u{9b}",
        "\x7f",
        "\u{202e}",
        "\u{2066}",
    ];
    PARTS.into_iter().find(|part| text.contains(part))
}

/// A line that a target's words begin, as if it were the command's.
pub fn forged(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    lines.find(|line| line.trim_start_matches('\r').starts_with("FORGED"))
}
