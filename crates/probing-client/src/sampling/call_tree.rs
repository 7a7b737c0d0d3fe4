//! A tree of calls with their counts, made of many stacks.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// More than any program needs, and some 100 MB: what is called beyond it counts for its nearest known caller.
const MAX_CALLS: usize = 1 << 20;
const ROOT: u32 = 0;

/// Where a stack was: a line, a function, or words in brackets for what is neither.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FrameLocation {
    pub func: Arc<str>,
    pub file: Option<Arc<Path>>,
    pub line: Option<u32>,
}

impl FrameLocation {
    /// What is no place in a program: a thread, frames that were not seen.
    pub fn words(text: &str) -> Self {
        Self {
            func: text.into(),
            file: None,
            line: None,
        }
    }
}

/// One call, by the call around it.
#[derive(Debug, Clone, Copy)]
struct Call {
    parent: u32,
    place: u32,
    /// How often a stack ended here.
    seen: u64,
}

/// All stacks seen so far. Grows with the program's calls, not with time.
#[derive(Debug)]
pub struct Calls {
    places: Vec<FrameLocation>,
    known_places: HashMap<FrameLocation, u32>,
    nodes: Vec<Call>,
    /// By caller and place.
    known_nodes: HashMap<(u32, u32), u32>,
    most: usize,
    cut: u64,
}

impl Default for Calls {
    fn default() -> Self {
        Self::with_most(MAX_CALLS)
    }
}

impl Calls {
    fn with_most(most: usize) -> Self {
        let root = Call {
            parent: ROOT,
            place: u32::MAX,
            seen: 0,
        };
        Self {
            places: Vec::new(),
            known_places: HashMap::new(),
            nodes: vec![root],
            known_nodes: HashMap::new(),
            most,
            cut: 0,
        }
    }

    /// Counts a stack, outermost place first.
    pub(crate) fn add(&mut self, stack: impl IntoIterator<Item = FrameLocation>) {
        self.add_times(stack, 1);
    }

    /// Counts a stack that was seen so often.
    pub(crate) fn add_times(&mut self, stack: impl IntoIterator<Item = FrameLocation>, seen: u64) {
        let at = self.enter(stack);
        self.nodes[at as usize].seen += seen;
    }

    /// Stacks that were cut elsewhere.
    pub(crate) fn add_cut(&mut self, cut: u64) {
        self.cut += cut;
    }

    /// The innermost call of a stack.
    fn enter(&mut self, stack: impl IntoIterator<Item = FrameLocation>) -> u32 {
        let mut at = ROOT;
        for place in stack {
            let Some(call) = self.call(at, place) else {
                self.cut += 1;
                break;
            };
            at = call;
        }
        at
    }

    /// Counts all stacks of another tree, below `root`.
    pub(crate) fn add_all(&mut self, root: &FrameLocation, other: &Self) {
        for (stack, seen) in other.stacks() {
            let places = stack.into_iter().map(|place| other.places[place].clone());
            let at = self.enter(std::iter::once(root.clone()).chain(places));
            self.nodes[at as usize].seen += seen;
        }
        self.cut += other.cut;
    }

    fn call(&mut self, parent: u32, place: FrameLocation) -> Option<u32> {
        let is_full = self.nodes.len() > self.most;
        let place = match self.known_places.get(&place) {
            Some(known) => *known,
            None if is_full => return None,
            None => {
                let new = self.places.len() as u32;
                self.places.push(place.clone());
                self.known_places.insert(place, new);
                new
            }
        };
        if let Some(known) = self.known_nodes.get(&(parent, place)) {
            return Some(*known);
        }
        if is_full {
            return None;
        }
        let new = self.nodes.len() as u32;
        let seen = 0;
        self.nodes.push(Call {
            parent,
            place,
            seen,
        });
        self.known_nodes.insert((parent, place), new);
        Some(new)
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.iter().all(|call| call.seen == 0)
    }

    /// Every place, in the order in which they were first seen.
    pub fn places(&self) -> &[FrameLocation] {
        &self.places
    }

    /// Stacks that were cut because there are too many different ones.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Every stack that was seen, as indices of its places, outermost first, and how often.
    pub fn stacks(&self) -> impl Iterator<Item = (Vec<usize>, u64)> {
        let seen = self.nodes.iter().filter(|call| call.seen > 0);
        seen.map(|call| {
            let (mut stack, mut at) = (Vec::new(), call);
            while at.place != u32::MAX {
                stack.push(at.place as usize);
                at = &self.nodes[at.parent as usize];
            }
            stack.reverse();
            (stack, call.seen)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn added(most: usize, stacks: &[Vec<u8>]) -> Calls {
        let mut calls = Calls::with_most(most);
        for stack in stacks {
            calls.add(stack.iter().map(|n| FrameLocation::words(&n.to_string())));
        }
        calls
    }

    fn told(calls: &Calls) -> HashMap<Vec<u8>, u64> {
        let number = |place: usize| calls.places()[place].func.parse().unwrap();
        let stacks = calls.stacks();
        stacks
            .map(|(stack, seen)| (stack.into_iter().map(number).collect(), seen))
            .collect()
    }

    #[test]
    fn trees_are_put_below_roots() {
        let mut all = Calls::default();
        all.add_all(
            &FrameLocation::words("7"),
            &added(MAX_CALLS, &[vec![1, 2], vec![1, 2], vec![1]]),
        );
        all.add_all(&FrameLocation::words("8"), &added(MAX_CALLS, &[vec![1]]));
        let expected = [(vec![7, 1, 2], 2), (vec![7, 1], 1), (vec![8, 1], 1)];
        assert_eq!(told(&all), HashMap::from(expected));
    }

    proptest! {
        #[test]
        fn what_goes_in_is_counted(stacks in prop::collection::vec(prop::collection::vec(0u8..4, 0..6), 0..40)) {
            let mut counts: HashMap<Vec<u8>, u64> = HashMap::new();
            for stack in &stacks {
                *counts.entry(stack.clone()).or_default() += 1;
            }
            let calls = added(MAX_CALLS, &stacks);
            prop_assert_eq!(told(&calls), counts);
            prop_assert_eq!(calls.cut(), 0);
        }

        #[test]
        fn too_many_are_cut_and_none_is_lost(stacks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 0..40)) {
            let calls = added(5, &stacks);
            prop_assert!(calls.nodes.len() <= 6 && calls.places().len() <= 6);
            prop_assert_eq!(told(&calls).values().sum::<u64>(), stacks.len() as u64);
        }
    }
}
