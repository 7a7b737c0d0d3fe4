//! How answers call the targets they speak of: `ranks 0-6,8 and pid 4242`.

use std::fmt;

use probing_proto::process::Pid;

use crate::labels::ranks::Ranks;

/// Ranges or pids of one group that are written out.
const SHOWN: usize = 12;

/// One target of a set, by the shortest name that tells it from the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetLabel {
    /// Its number in its job.
    Rank(u32),
    Pid(Pid),
    /// As the user named it, when neither is known.
    Named(String),
}

impl fmt::Display for TargetLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(rank) => write!(f, "rank {rank}"),
            Self::Pid(pid) => write!(f, "pid {pid}"),
            Self::Named(name) => name.fmt(f),
        }
    }
}

/// Several targets together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    pub ranks: Ranks,
    /// Ascending.
    pub pids: Vec<Pid>,
    pub named: Vec<String>,
}

impl<'a> FromIterator<&'a TargetLabel> for Group {
    fn from_iter<T: IntoIterator<Item = &'a TargetLabel>>(all: T) -> Self {
        let (mut ranks, mut pids, mut named) = (Vec::new(), Vec::new(), Vec::new());
        for who in all {
            match who {
                TargetLabel::Rank(rank) => ranks.push(*rank),
                TargetLabel::Pid(pid) => pids.push(*pid),
                TargetLabel::Named(name) => named.push(name.clone()),
            }
        }
        pids.sort_unstable();
        pids.dedup();
        named.sort_unstable();
        named.dedup();
        Self {
            ranks: ranks.into_iter().collect(),
            pids,
            named,
        }
    }
}

impl Group {
    /// How many targets there are.
    pub fn count(&self) -> usize {
        self.ranks.count() as usize + self.pids.len() + self.named.len()
    }
}

/// In words, cut when long.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = self.ranks.ranges().iter().map(|range| {
            let (first, last) = (range.start(), range.end());
            let text = if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            };
            (text, (last - first) as usize + 1)
        });
        let pids = self.pids.iter().map(|pid| (pid.to_string(), 1));
        let named = self.named.iter().map(|name| (name.clone(), 1));
        let kinds = [
            listed("rank", ranks.collect()),
            listed("pid", pids.collect()),
            listed("", named.collect()),
        ];
        let kinds: Vec<String> = kinds.into_iter().flatten().collect();
        f.write_str(&kinds.join(" and "))
    }
}

/// `ranks 0-6,8`; each part stands for a number of targets.
fn listed(kind: &str, parts: Vec<(String, usize)>) -> Option<String> {
    let all: usize = parts.iter().map(|(_, count)| count).sum();
    let shown: usize = parts.iter().take(SHOWN).map(|(_, count)| count).sum();
    let text: Vec<String> = parts
        .into_iter()
        .take(SHOWN)
        .map(|(text, _)| text)
        .collect();
    let text = text.join(",");
    let cut = match all - shown {
        0 => String::new(),
        more => format!(" … ({more} more)"),
    };
    match (all, kind) {
        (0, _) => None,
        (_, "") => Some(format!("{text}{cut}")),
        (1, _) => Some(format!("{kind} {text}")),
        _ => Some(format!("{kind}s {text}{cut}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(all: &[TargetLabel]) -> String {
        all.iter().collect::<Group>().to_string()
    }

    #[test]
    fn a_group_is_told_in_few_words() {
        let ranks = |ranks: &[u32]| {
            ranks
                .iter()
                .copied()
                .map(TargetLabel::Rank)
                .collect::<Vec<_>>()
        };
        let pid = |pid| TargetLabel::Pid(Pid(pid));
        assert_eq!(shown(&ranks(&[7])), "rank 7");
        assert_eq!(shown(&ranks(&[8, 0, 1, 2])), "ranks 0-2,8");
        assert_eq!(shown(&[pid(43), pid(42), pid(42)]), "pids 42,43");
        let mixed = [
            TargetLabel::Named("unix:/x".into()),
            TargetLabel::Rank(3),
            pid(42),
        ];
        assert_eq!(shown(&mixed), "rank 3 and pid 42 and unix:/x");
        let even: Vec<u32> = (0..512).filter(|rank| rank % 2 == 0).collect();
        assert_eq!(
            shown(&ranks(&even)),
            "ranks 0,2,4,6,8,10,12,14,16,18,20,22 … (244 more)"
        );
    }
}
