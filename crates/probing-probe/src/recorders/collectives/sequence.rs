//! The numbers of a group's operations, counted along.
//!
//! torch tells the next one, for 0.3 µs. So it is asked until each kind of operation was seen to count one, and now and then
//! after that. A group that does not count says so by an exception, for 20 µs: it is not asked much more often.
//!
//! Some groups count operations between two ranks, too, of which the others know nothing. What was counted for those is taken
//! off: who passes something on would run ahead of the rest.

/// Of how many operations one is asked for all the same.
const EVERY: u32 = 64;
/// The same of a group that has not told for so many times: some do not count before all ranks have met.
const EVERY_UNTOLD: u32 = 1024;
const MAX_UNCONFIRMED: u32 = 8;

pub(crate) struct Count {
    /// Torch's number of the last operation, and what that was.
    last: Option<(i64, Counted)>,
    /// How much of torch's number is operations between two ranks.
    between_two: i64,
    /// Kinds after which the number was one more.
    by_one: [bool; 256],
    since: u32,
    /// How often torch has not told, in a row.
    untold: u32,
    /// It was not as it should have been: torch is asked each time.
    is_wrong: bool,
}

/// An operation, as far as it matters to numbers.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    /// Torch's number of what it is.
    pub(crate) kind: u8,
    pub(crate) is_between_two: bool,
}

impl Default for Count {
    fn default() -> Self {
        Self {
            last: None,
            between_two: 0,
            by_one: [false; 256],
            since: 0,
            untold: 0,
            is_wrong: false,
        }
    }
}

impl Count {
    /// Whether torch does not tell, and is not to be asked again now.
    pub(crate) fn is_untold(&mut self) -> bool {
        if self.untold < MAX_UNCONFIRMED {
            return false;
        }
        self.since += 1;
        self.since < EVERY_UNTOLD
    }

    /// The number of the next operation; `None` when torch is to be asked.
    pub(crate) fn next(&mut self, next: Counted) -> Option<i64> {
        let (number, before) = self.last?;
        self.since += 1;
        let is_sure = self.counts(before) && !self.is_wrong && self.since < EVERY;
        is_sure.then(|| self.follows(number + 1, next))
    }

    /// What torch says of the next operation. Returns its number among those that all ranks do.
    pub(crate) fn told(&mut self, number: Option<i64>, next: Counted) -> Option<i64> {
        if let (Some((last, before)), Some(number)) = (self.last, number) {
            let is_one = number == last + 1;
            self.is_wrong |= self.counts(before) && !is_one;
            self.by_one[usize::from(before.kind)] = is_one;
        }
        self.since = 0;
        self.untold = if number.is_some() {
            0
        } else {
            self.untold.saturating_add(1)
        };
        if number.is_none() {
            self.forget();
        }
        number.map(|number| self.follows(number, next))
    }

    /// Something may have counted that is not known.
    pub(crate) fn forget(&mut self) {
        if let Some((_, last)) = self.last.take() {
            self.take_off(last);
        }
    }

    fn counts(&self, operation: Counted) -> bool {
        self.by_one[usize::from(operation.kind)]
    }

    fn follows(&mut self, number: i64, next: Counted) -> i64 {
        if let Some((_, before)) = self.last.replace((number, next)) {
            self.take_off(before);
        }
        number - self.between_two
    }

    fn take_off(&mut self, operation: Counted) {
        let is_taken_off = operation.is_between_two && self.counts(operation);
        self.between_two += i64::from(is_taken_off);
    }
}
