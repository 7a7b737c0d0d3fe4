//! The nearest name to a misspelled one.

/// The one of `names` that is most like `wanted`, if one is like it at all.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    let far = |name: &str| {
        let name = name.to_lowercase();
        // Half of it was typed, or the rest was forgotten: `trace` for `backtrace`, `python.thread` for `python.threads`.
        let is_part = wanted.len() >= 4 && (name.contains(&wanted) || wanted.contains(&name));
        let far = distance(&wanted, &name);
        if is_part { far.min(1) } else { far }
    };
    names
        .map(|name| (far(name), name))
        .filter(|(far, name)| *far <= 1 + wanted.len().min(name.len()) / 4)
        .min_by_key(|(far, _)| *far)
        .map(|(_, name)| name)
}

/// How many letters have to be put in, taken out or changed.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = index + 1;
        for (place, other) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *other);
            before = row[place + 1];
            row[place + 1] = changed.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_by_most_of_its_letters() {
        let names = [
            "python.backtrace",
            "python.threads",
            "process.threads",
            "process.info",
        ];
        let check = |wanted: &str, found: Option<&str>| {
            assert_eq!(nearest(wanted, names.into_iter()), found, "{wanted}");
        };
        check("python.backtraces", Some("python.backtrace"));
        check("python.bactrace", Some("python.backtrace"));
        check("backtrace", Some("python.backtrace"));
        check("python.thread", Some("python.threads"));
        check("PROCESS.INFO", Some("process.info"));
        check("nothing.of.the.kind", None);
        check("", None);
        check("x", None);
    }
}
