//! Local variables of a frame of several targets: equal values once, others with their targets.

use std::collections::HashMap;

use probing_client::{Branch, Group, TargetLabel};
use probing_proto::report::ReportedLocal;

use crate::commands::backtrace::set::NamedTree;

/// Different values of one variable that are written out.
const VALUES_SHOWN: usize = 4;
/// Of one value where there are several.
const MAX_VALUE_CHARS: usize = 60;

/// The variables of the frame with this number of frames above it.
pub(super) fn merge_locals(
    named: &NamedTree<'_>,
    branch: &Branch,
    above: usize,
) -> Vec<ReportedLocal> {
    let frames = named.tree.stacks(branch).filter_map(|(stack, who)| {
        let outermost_first = named.stacks.get(stack)?.frames.iter().rev();
        let locals = outermost_first
            .skip(above)
            .map(|frame| frame.locals.as_deref());
        Some((who, { locals }.next()??))
    });
    shared(&frames.collect::<Vec<_>>())
}

fn shared(frames: &[(&TargetLabel, &[ReportedLocal])]) -> Vec<ReportedLocal> {
    let mut names: Vec<&str> = Vec::new();
    let mut values: HashMap<&str, Vec<(&str, Vec<&TargetLabel>)>> = HashMap::new();
    for (who, locals) in frames {
        for local in *locals {
            let known = values.entry(&local.name).or_insert_with(|| {
                names.push(&local.name);
                Vec::new()
            });
            match known.iter_mut().find(|(value, _)| *value == &*local.value) {
                Some((_, all)) => all.push(who),
                None => known.push((&local.value, vec![who])),
            }
        }
    }
    let told = |name: &str| ReportedLocal {
        name: name.into(),
        value: by_value(values.remove(name).unwrap_or_default(), frames.len()).into(),
        kind: None,
    };
    names.into_iter().map(told).collect()
}

/// `3 (ranks 0-6), 4 (rank 7)`
fn by_value(mut values: Vec<(&str, Vec<&TargetLabel>)>, all: usize) -> String {
    if let [(value, who)] = &values[..]
        && who.len() == all
    {
        return (*value).to_owned();
    }
    // Stable, so that those come first that were read first.
    values.sort_by_key(|(_, who)| std::cmp::Reverse(who.len()));
    let others = values.len().saturating_sub(VALUES_SHOWN);
    let told = values.iter().take(VALUES_SHOWN).map(|(value, who)| {
        let group: Group = who.iter().copied().collect();
        format!("{} ({group})", cut(value))
    });
    let mut told: Vec<String> = told.collect();
    if others > 0 {
        told.push(format!("… {others} other values"));
    }
    told.join(", ")
}

fn cut(value: &str) -> String {
    match value.char_indices().nth(MAX_VALUE_CHARS) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks with their variables, `x=1 y=2`.
    fn check(ranks: &[&str], expected: &[&str]) {
        let local = |word: &str| {
            let (name, value) = word.split_once('=').unwrap();
            ReportedLocal {
                name: name.into(),
                value: value.into(),
                kind: None,
            }
        };
        let locals: Vec<(TargetLabel, Vec<ReportedLocal>)> = ranks
            .iter()
            .enumerate()
            .map(|(rank, words)| {
                let locals = words.split_whitespace().map(local).collect();
                (TargetLabel::Rank(rank as u32), locals)
            })
            .collect();
        let frames: Vec<(&TargetLabel, &[ReportedLocal])> =
            locals.iter().map(|(who, all)| (who, &all[..])).collect();
        let told: Vec<String> = shared(&frames)
            .iter()
            .map(|local| format!("{} = {}", local.name, local.value))
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn what_all_have_is_told_once_and_else_who_has_what() {
        check(&["x=1", "x=1"], &["x = 1"]);
        check(
            &["x=1 y=7", "x=2 y=7", "x=2 y=7"],
            &["x = 2 (ranks 1-2), 1 (rank 0)", "y = 7"],
        );
        // One has not come so far.
        check(&["x=1", ""], &["x = 1 (rank 0)"]);
        check(&["x=1", "y=2"], &["x = 1 (rank 0)", "y = 2 (rank 1)"]);
        check(
            &["x=1", "x=2", "x=3", "x=4", "x=5", "x=6"],
            &["x = 1 (rank 0), 2 (rank 1), 3 (rank 2), 4 (rank 3), … 2 other values"],
        );
        let long = "x=".to_owned() + &"é".repeat(100);
        let short = format!("x = {}… (rank 0), 1 (rank 1)", "é".repeat(60));
        check(&[&long, "x=1"], &[&short]);
        check(&[], &[]);
    }
}
