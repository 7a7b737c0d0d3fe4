//! What is to be done when a function begins and ends.

use pyo3::Borrowed;
use pyo3::prelude::*;

/// Which events a tap is told of: a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EventSet(u8);

impl EventSet {
    pub(crate) const STARTS: Self = Self(1);
    pub(crate) const RETURNS: Self = Self(2);
    /// Left by an exception. Told of all code, not of one code object, until Python 3.15: only while something needs it.
    pub(crate) const UNWINDS: Self = Self(4);
    /// Generators and coroutines: when they are left and come back to.
    pub(crate) const YIELDS: Self = Self(8);
    /// What it calls.
    pub(crate) const CALLS: Self = Self(16);
    /// Where it goes one of two ways.
    pub(crate) const BRANCHES: Self = Self(32);
    /// The lines that it comes to.
    pub(crate) const LINES: Self = Self(64);

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Those that cannot be asked of one code object; of what is called through C, only all code can tell that it begins.
    pub(crate) const fn everywhere(self) -> u8 {
        self.0 & (Self::UNWINDS.0 | Self::YIELDS.0 | Self::CALLS.0)
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What an event is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventContext<'a, 'py> {
    /// The function's code.
    pub(crate) code: Borrowed<'a, 'py, PyAny>,
    /// When, by the clock of recorded rows.
    pub(crate) nanos: i64,
}

/// Called in the thread in which the function runs, with the GIL held, while the function's frame is the innermost one.
/// What it runs of Python must neither raise nor take long; functions that it calls are told of, too.
pub(crate) trait Tap: Sync {
    fn wants(&self) -> EventSet;

    fn started(&self, _: EventContext<'_, '_>) {}

    fn returned(&self, _: EventContext<'_, '_>, _value: Borrowed<'_, '_, PyAny>) {}

    fn unwound(&self, _: EventContext<'_, '_>, _exception: Borrowed<'_, '_, PyAny>) {}

    fn yielded(&self, _: EventContext<'_, '_>) {}

    fn resumed(&self, _: EventContext<'_, '_>) {}

    fn branched(&self, _: EventContext<'_, '_>) {}
}
