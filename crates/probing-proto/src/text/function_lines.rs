//! The lines of the function that contains a line, found by indentation.

/// The first and the last line, of lines that are numbered from 1. The whole file where no function is around it.
pub fn around(lines: &[String], line: u32) -> (u32, u32) {
    let current = (line.max(1) as usize - 1).min(lines.len().saturating_sub(1));
    let whole = (1, lines.len() as u32);
    let Some(own) = lines.get(current).and_then(|line| indent(line)) else {
        return whole;
    };
    let is_head = |text: &str| {
        let text = text.trim_start();
        text.starts_with("def ") || text.starts_with("async def ")
    };
    // The line itself may be where the function begins.
    let mut limit = if is_head(&lines[current]) {
        own + 1
    } else {
        own
    };
    let mut begin = None;
    for at in (0..=current).rev() {
        let Some(depth) = indent(&lines[at]).filter(|depth| *depth < limit) else {
            continue;
        };
        if is_head(&lines[at]) {
            begin = Some((at, depth));
            break;
        }
        limit = depth;
    }
    let Some((head, depth)) = begin else {
        return whole;
    };
    let is_decorator = |at: &usize| lines[*at].trim_start().starts_with('@');
    let first = (0..head)
        .rev()
        .take_while(is_decorator)
        .last()
        .unwrap_or(head);
    let ends = |(_, text): &(usize, &String)| indent(text).is_some_and(|other| other <= depth);
    let end = lines.iter().enumerate().skip(head + 1).find(ends);
    let mut last = end.map_or(lines.len(), |(at, _)| at);
    while last > head + 1 && lines[last - 1].trim().is_empty() {
        last -= 1;
    }
    (first as u32 + 1, last as u32)
}

/// Longer functions are not kept whole.
const MAX_LINES: u32 = 400;

/// The lines to keep for who looks later at a place: those of its function, and some on each side of the place.
pub fn kept(lines: &[String], line: u32, each_side: u32) -> (u32, u32) {
    let near = (
        line.saturating_sub(each_side).max(1),
        line.saturating_add(each_side).min(lines.len() as u32),
    );
    let (first, last) = around(lines, line);
    let is_function = (first, last) != (1, lines.len() as u32);
    if !is_function || last - first >= MAX_LINES {
        return near;
    }
    (first.min(near.0), last.max(near.1))
}

/// None for a line that says nothing about it: an empty one, a comment, the end of the parameters.
fn indent(line: &str) -> Option<usize> {
    let text = line.trim_start();
    (!text.is_empty() && !text.starts_with(['#', ')'])).then_some(line.len() - text.len())
}

#[cfg(test)]
mod tests {
    use super::{around, kept};

    #[test]
    fn a_function_is_all_that_is_indented_below_its_head() {
        let source = "import os\n\n@cache\n@other(1)\ndef f(\n    a,\n):\n    if a:\n\n# note\n        return 1\n    def g():\n        return 2\n    return g\n\n\nclass C:\n    x = 1\n\n    async def m(self):\n        return 3\n\nf(1)\n";
        let lines: Vec<String> = source.lines().map(str::to_owned).collect();
        let check = |line, expected| assert_eq!(around(&lines, line), expected, "line {line}");
        let whole = (1, lines.len() as u32);
        for line in [5, 8, 11, 14] {
            check(line, (3, 14));
        }
        check(13, (12, 13));
        check(21, (20, 21));
        for line in [1, 18, 23, 99] {
            check(line, whole);
        }
        assert_eq!(around(&[], 1), (1, 0));
    }

    #[test]
    fn a_function_is_kept_whole_unless_it_is_very_long() {
        let function = |length: usize| -> Vec<String> {
            let head = ["x = 1", "", "def f():"].map(str::to_owned);
            let body = (0..length).map(|line| format!("    a = {line}"));
            let rest = ["", "f()"].map(str::to_owned);
            head.into_iter().chain(body).chain(rest).collect()
        };
        assert_eq!(kept(&function(100), 50, 10), (3, 103));
        assert_eq!(kept(&function(100), 5, 10), (1, 103));
        assert_eq!(kept(&function(1000), 500, 10), (490, 510));
        assert_eq!(kept(&function(100), 105, 10), (95, 105));
        assert_eq!(kept(&[], 7, 10), (1, 0));
    }
}
