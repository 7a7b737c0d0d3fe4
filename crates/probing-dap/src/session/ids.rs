//! Numbers by which a client refers to frames and values.
//!
//! Each is given once and never again. Those of a stop are forgotten when its thread resumes.

use std::collections::HashMap;

use probing_proto::message::breakpoints::StopId;

/// A stopped thread of one of the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StopKey {
    pub(super) target: usize,
    pub(super) stop: StopId,
}

#[derive(Debug)]
pub(super) struct Ids<T> {
    last: i64,
    all: HashMap<i64, (Option<StopKey>, T)>,
}

impl<T> Default for Ids<T> {
    fn default() -> Self {
        Self {
            last: 0,
            all: HashMap::new(),
        }
    }
}

impl<T> Ids<T> {
    pub(super) fn give(&mut self, owner: Option<StopKey>, value: T) -> i64 {
        self.last += 1;
        self.all.insert(self.last, (owner, value));
        self.last
    }

    pub(super) fn find(&self, id: i64) -> Option<&T> {
        self.all.get(&id).map(|(_, value)| value)
    }

    pub(super) fn find_mut(&mut self, id: i64) -> Option<&mut T> {
        self.all.get_mut(&id).map(|(_, value)| value)
    }

    /// Takes away those of a stop.
    pub(super) fn forget(&mut self, owner: StopKey) -> Vec<T> {
        let is_of = |it: &Option<StopKey>| *it == Some(owner);
        let gone: Vec<i64> = self
            .all
            .iter()
            .filter(|(_, (it, _))| is_of(it))
            .map(|(id, _)| *id)
            .collect();
        gone.iter()
            .filter_map(|id| self.all.remove(id))
            .map(|(_, value)| value)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_valid_while_its_thread_is_stopped_and_never_means_another() {
        let key = |stop| StopKey {
            target: 0,
            stop: StopId(stop),
        };
        let mut ids = Ids::default();
        let first = ids.give(Some(key(1)), "one");
        let second = ids.give(Some(key(2)), "two");
        let lasting = ids.give(None, "always");
        assert_eq!(ids.forget(key(1)), ["one"]);
        assert_eq!(ids.find(first), None);
        assert_eq!(ids.find(second), Some(&"two"));
        assert_eq!(ids.find(lasting), Some(&"always"));
        assert!(ids.give(Some(key(1)), "three") > lasting);
    }
}
