//! The outlier: the target that is missing where nearly all others wait.
//!
//! Functions count, not lines: at which line running code happens to be, or which of two lines called the function that
//! all wait in, says nothing. Who is on a CPU just now may have been waiting a moment ago.

use std::collections::HashMap;

use crate::stacks::merged_tree::{LeafState, Merge, NodeId, Step};

/// Where most are: the functions from a parting on, and how it ends.
struct CommonPath<'a> {
    functions: Vec<Function<'a>>,
    stopped: bool,
}

/// Name and file.
type Function<'a> = (&'a str, &'a str);

/// Which of the branches that begin with `nexts`, most first, are odd.
pub(super) fn among(merge: &Merge, ends: &HashMap<u32, LeafState>, nexts: &[NodeId]) -> Vec<bool> {
    let look = OutlierSearch { merge, ends };
    let nobody = vec![false; nexts.len()];
    let Some(usual) = nexts.first().and_then(|most| look.usual(*most)) else {
        return nobody;
    };
    let there: Vec<BranchCounts> = nexts.iter().map(|next| look.there(*next, &usual)).collect();
    let all = nexts.iter().map(|next| look.count(*next)).sum();
    let waiting = there.iter().map(|there| there.waiting).sum();
    if !stands_out(waiting, all) {
        return nobody;
    }
    there.iter().map(|there| there.all == 0).collect()
}

/// Whether `most` of `all` are so many that the rest are the odd ones out: three quarters, or two of three.
fn stands_out(most: usize, all: usize) -> bool {
    most * 4 >= all * 3 || (most, all) == (2, 3)
}

/// How many of a branch are where most are.
#[derive(Debug, Clone, Copy, Default)]
struct BranchCounts {
    all: usize,
    waiting: usize,
}

struct OutlierSearch<'a> {
    merge: &'a Merge,
    ends: &'a HashMap<u32, LeafState>,
}

impl<'a> OutlierSearch<'a> {
    fn count(&self, id: NodeId) -> usize {
        self.merge.nodes[id as usize].count
    }

    fn function(&self, frame: u32) -> Function<'a> {
        let frame = &self.merge.frames[frame as usize];
        (&frame.func, &frame.file)
    }

    /// From a node on, always with the most.
    fn usual(&self, mut at: NodeId) -> Option<CommonPath<'a>> {
        let mut functions = Vec::new();
        loop {
            let node = &self.merge.nodes[at as usize];
            match node.step {
                Step::Frame(frame) => functions.push(self.function(frame)),
                Step::End(end) => {
                    let stopped = is_stopped(self.ends.get(&end)?);
                    return Some(CommonPath { functions, stopped });
                }
            }
            at = *node.children.iter().max_by_key(|id| self.count(**id))?;
        }
    }

    /// Those below a node whose functions are the usual ones.
    fn there(&self, from: NodeId, usual: &CommonPath<'_>) -> BranchCounts {
        let mut there = BranchCounts::default();
        let mut below = vec![(from, 0)];
        while let Some((id, depth)) = below.pop() {
            let node = &self.merge.nodes[id as usize];
            match (node.step, usual.functions.get(depth)) {
                (Step::Frame(frame), Some(function)) if self.function(frame) == *function => {
                    below.extend(node.children.iter().map(|child| (*child, depth + 1)));
                }
                (Step::End(end), None) => {
                    let end = self.ends.get(&end);
                    if let Some(end) = end.filter(|end| is_stopped(end) == usual.stopped) {
                        there.all += node.ended.len();
                        there.waiting += if waits(end) { node.ended.len() } else { 0 };
                    }
                }
                _ => {}
            }
        }
        there
    }
}

fn is_stopped(end: &LeafState) -> bool {
    end.state == "stopped"
}

/// It does not go on by itself.
fn waits(end: &LeafState) -> bool {
    end.complete && end.state != "running" && end.gil != probing_proto::report::GilState::Waits
}
