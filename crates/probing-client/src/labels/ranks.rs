//! Sets of ranks, as people write them: `0,2-5`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A set of ranks. As small as its text, however many ranks there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranks {
    /// Ascending, with a gap between each and the next.
    ranges: Vec<RangeInclusive<u32>>,
}

/// What `--ranks` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RankSelector {
    These(Ranks),
    /// `all`: every rank of the job. Those that should be there and are not are named.
    All,
    /// `failed`: those that no living process has any more. Of those that recorded, the rows are still there.
    Failed,
}

impl FromStr for RankSelector {
    type Err = NotRanks;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            "failed" => Ok(Self::Failed),
            text => text.parse().map(Self::These),
        }
    }
}

/// The text names no ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRanks {
    #[error("not ranks (0,2-5), all or failed")]
    Malformed,
    #[error("a range goes from the smaller rank to the larger: {first}-{last}")]
    Backwards { first: u32, last: u32 },
}

impl Ranks {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ranks there are.
    pub fn count(&self) -> u64 {
        let length = |range: &RangeInclusive<u32>| u64::from(range.end() - range.start()) + 1;
        self.ranges.iter().map(length).sum()
    }

    pub fn contains(&self, rank: u32) -> bool {
        let after = self.ranges.partition_point(|range| *range.end() < rank);
        self.ranges
            .get(after)
            .is_some_and(|range| range.contains(&rank))
    }

    /// The first N.
    pub(crate) fn first(count: u32) -> Self {
        let ranges = count.checked_sub(1).map(|last| 0..=last);
        Self {
            ranges: ranges.into_iter().collect(),
        }
    }

    /// The ranges in ascending order.
    pub fn ranges(&self) -> &[RangeInclusive<u32>] {
        &self.ranges
    }

    /// Those of `self` that are not in `others`.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        let mut left = Vec::new();
        for range in &self.ranges {
            let mut next = Some(*range.start());
            for other in &others.ranges {
                let Some(start) = next else { break };
                if other.end() < &start {
                    continue;
                }
                if other.start() > range.end() {
                    break;
                }
                if *other.start() > start {
                    left.push(start..=other.start() - 1);
                }
                next = other
                    .end()
                    .checked_add(1)
                    .filter(|next| next <= range.end());
            }
            left.extend(next.map(|start| start..=*range.end()));
        }
        Self { ranges: left }
    }

    fn of_ranges(mut ranges: Vec<RangeInclusive<u32>>) -> Self {
        ranges.sort_unstable_by_key(|range| *range.start());
        let mut apart: Vec<RangeInclusive<u32>> = Vec::new();
        for range in ranges {
            match apart.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => apart.push(range),
            }
        }
        Self { ranges: apart }
    }
}

impl FromIterator<u32> for Ranks {
    fn from_iter<T: IntoIterator<Item = u32>>(ranks: T) -> Self {
        Self::of_ranges(ranks.into_iter().map(|rank| rank..=rank).collect())
    }
}

impl FromStr for Ranks {
    type Err = NotRanks;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ranges: Result<_, _> = text.split(',').map(range).collect();
        Ok(Self::of_ranges(ranges?))
    }
}

fn range(text: &str) -> Result<RangeInclusive<u32>, NotRanks> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number.ok_or(NotRanks::Malformed)
    };
    let (first, last) = text
        .trim()
        .split_once('-')
        .unwrap_or((text.trim(), text.trim()));
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(NotRanks::Backwards { first, last });
    }
    Ok(first..=last)
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let (first, last) = (range.start(), range.end());
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranks(text: &str) -> Ranks {
        text.parse().unwrap()
    }

    #[test]
    fn ranks_are_numbers_and_ranges() {
        let check = |text: &str, shown: &str| assert_eq!(ranks(text).to_string(), shown);
        check("0,2-5", "0,2-5");
        check("7", "7");
        check("5,4,3", "3-5");
        check("2-5,4-9,11", "2-9,11");
        check("0, 1, 9", "0-1,9");
        check("0-4294967295", "0-4294967295");
        for text in [
            "",
            ",",
            "a",
            "-1",
            "1-",
            "1-2-3",
            "+1",
            "1,,2",
            "4294967296",
        ] {
            assert_eq!(text.parse::<Ranks>(), Err(NotRanks::Malformed), "{text}");
        }
        let backwards = NotRanks::Backwards { first: 5, last: 2 };
        assert_eq!("5-2".parse::<Ranks>(), Err(backwards));
        assert_eq!("failed".parse(), Ok(RankSelector::Failed));
        assert_eq!("all".parse(), Ok(RankSelector::All));
        assert_eq!("7".parse(), Ok(RankSelector::These(ranks("7"))));
        assert_eq!(Ranks::first(3), ranks("0-2"));
        assert_eq!(Ranks::first(0), Ranks::default());
    }

    #[test]
    fn the_largest_rank_is_no_special_case() {
        let all = ranks("0-4294967295");
        assert_eq!(all.count(), 1 << 32);
        assert_eq!(
            all.without(&ranks("4294967295")).to_string(),
            "0-4294967294"
        );
        assert_eq!(all.without(&all), Ranks::default());
    }

    proptest! {
        #[test]
        fn a_set_of_ranks_is_a_set(some in prop::collection::btree_set(0u32..40, 0..30),
                                   others in prop::collection::btree_set(0u32..40, 0..30)) {
            let [ours, theirs] = [&some, &others].map(|set| set.iter().copied().collect::<Ranks>());
            prop_assert_eq!(ours.count(), some.len() as u64);
            for rank in 0..41 {
                prop_assert_eq!(ours.contains(rank), some.contains(&rank));
            }
            let left: Ranks = some.difference(&others).copied().collect();
            prop_assert_eq!(ours.without(&theirs), left);
            if !some.is_empty() {
                prop_assert_eq!(ranks(&ours.to_string()), ours);
            }
        }
    }
}
