//! What rows say of the numbers that a tensor holds.

/// What is told of some numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Statistics {
    pub(crate) count: u64,
    pub(crate) nan: u64,
    pub(crate) inf: u64,
    pub(crate) zero: u64,
    /// None where no number is finite.
    pub(crate) finite: Option<Finite>,
}

/// What is told of those that are finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Finite {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    /// As of a sample (divided by one less than their count), which torch's `std` is, too. None of a single number.
    pub(crate) std: Option<f64>,
    pub(crate) norm: f64,
}

impl Statistics {
    /// Whether all of them are numbers, and finite.
    pub(crate) fn are_sound(&self) -> bool {
        self.nan == 0 && self.inf == 0
    }

    pub(crate) fn zero_share(&self) -> Option<f64> {
        (self.count > 0).then(|| self.zero as f64 / self.count as f64)
    }
}
