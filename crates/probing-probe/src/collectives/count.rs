//! The numbers of a group's operations, counted along.
//!
//! torch tells the next one, for 0.3 µs. So it is asked until each kind of operation was seen to count one, and now and then
//! after that. A group that does not count says so by an exception, for 20 µs: it is not asked much more often.

/// Of how many operations one is asked for all the same.
const EVERY: u32 = 64;
/// The same of a group that has not told for so many times: some do not count before all ranks have met.
const EVERY_UNTOLD: u32 = 1024;
const MOST_UNTOLD: u32 = 8;

pub(super) struct Count {
    /// The number and the kind of the last operation.
    last: Option<(i64, u8)>,
    /// Kinds after which the number was one more.
    by_one: [bool; 256],
    since: u32,
    /// How often torch has not told, in a row.
    untold: u32,
    /// It was not as it should have been: torch is asked each time.
    is_wrong: bool,
}

impl Default for Count {
    fn default() -> Self {
        Self {
            last: None,
            by_one: [false; 256],
            since: 0,
            untold: 0,
            is_wrong: false,
        }
    }
}

impl Count {
    /// Whether torch does not tell, and is not to be asked again now.
    pub(super) fn is_untold(&mut self) -> bool {
        if self.untold < MOST_UNTOLD {
            return false;
        }
        self.since += 1;
        self.since < EVERY_UNTOLD
    }

    /// The number of the next operation, which is of this kind; `None` when torch is to be asked.
    pub(super) fn next(&mut self, kind: u8) -> Option<i64> {
        let (seq, before) = self.last?;
        self.since += 1;
        let is_sure = self.by_one[usize::from(before)] && !self.is_wrong && self.since < EVERY;
        is_sure.then(|| {
            self.last = Some((seq + 1, kind));
            seq + 1
        })
    }

    /// What torch says of the next operation.
    pub(super) fn told(&mut self, seq: Option<i64>, kind: u8) {
        if let (Some((last, before)), Some(seq)) = (self.last, seq) {
            let is_one = seq == last + 1;
            let counts = &mut self.by_one[usize::from(before)];
            self.is_wrong |= *counts && !is_one;
            *counts = is_one;
        }
        self.since = 0;
        self.untold = if seq.is_some() {
            0
        } else {
            self.untold.saturating_add(1)
        };
        self.last = seq.map(|seq| (seq, kind));
    }

    /// Something may have counted that is not known.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}
