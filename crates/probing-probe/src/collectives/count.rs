//! The numbers of a group's operations, counted along.
//!
//! torch tells the next one, for 0.3 µs. So it is asked until each kind of operation was seen to count one, and now and then
//! after that.

/// Of how many operations one is asked for all the same.
const EVERY: u32 = 64;

pub(super) struct Count {
    /// The number and the kind of the last operation.
    last: Option<(i64, u8)>,
    /// Kinds after which the number was one more.
    by_one: [bool; 256],
    since: u32,
    /// It was not as it should have been: torch is asked each time.
    is_wrong: bool,
}

impl Default for Count {
    fn default() -> Self {
        Self {
            last: None,
            by_one: [false; 256],
            since: 0,
            is_wrong: false,
        }
    }
}

impl Count {
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
        self.last = seq.map(|seq| (seq, kind));
    }

    /// Something may have counted that is not known.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}
