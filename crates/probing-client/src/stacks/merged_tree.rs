//! The merged tree of many stacks: common frames once, then the branches with their targets.
//!
//! A stack is a path from its outermost frame to where the thread is now (which may be the only thing that differs: one
//! is stopped where the others wait). Frames are the same when function, file and line are: two lines of one function
//! are two places, and who is at which is what one wants to see.
//!
//! Who passes through a node is not written down at the node. All are listed once, in the order of the tree's leaves, so
//! that every branch is a stretch of that list: memory grows with the tree and with the number of stacks, not with
//! stacks times depth.

mod outlier;

use std::collections::HashMap;
use std::ops::Range;

use probing_proto::report::{FrameType, GilState, ReportedFrame, ReportedThread};

use crate::labels::target_label::{Group, TargetLabel};

/// Partings on one path. What parts deeper down is one branch: nobody reads further, and it bounds every recursion.
const MAX_DEPTH: usize = 40;

/// Many stacks, merged.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Whose stacks these are, in the order of the leaves.
    order: Vec<TargetLabel>,
    /// The same stacks, by when they were added.
    stacks: Vec<u32>,
    pub trunk: Branch,
}

/// Whether they tell the same, of whichever threads.
impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        (&self.order, &self.trunk) == (&other.order, &other.trunk)
    }
}

/// A stretch that some stacks have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// Outermost first.
    pub frames: Vec<ReportedFrame>,
    /// What becomes of it.
    pub then: BranchEnd,
    /// Few are here, and nearly all others wait together in another function.
    pub odd: bool,
    members: Range<usize>,
}

/// How a branch ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BranchEnd {
    /// The stacks end, all alike.
    End(LeafState),
    /// The stacks part: most first.
    Parts(Vec<Branch>),
    /// They part once more, too far from the trunk to be told.
    TooDeep,
}

/// What a thread does in its innermost frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeafState {
    /// As in [`ReportedThread::state`].
    pub state: String,
    pub gil: GilState,
    /// False when the thread moved too fast: its innermost frames are not known.
    pub complete: bool,
}

impl Tree {
    /// The targets of all stacks.
    pub fn group(&self) -> Group {
        self.who(&self.trunk)
    }

    /// The stacks that go through `branch`, by when they were added, and whose they are.
    pub fn stacks(&self, branch: &Branch) -> impl Iterator<Item = (usize, &TargetLabel)> {
        let stacks = self.stacks[branch.members.clone()].iter();
        let stacks = stacks.map(|stack| *stack as usize);
        stacks.zip(&self.order[branch.members.clone()])
    }

    /// The targets whose stacks go through `branch`.
    pub fn who(&self, branch: &Branch) -> Group {
        self.order[branch.members.clone()].iter().collect()
    }
}

type NodeId = u32;

/// What a step along a stack leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Frame(u32),
    End(u32),
}

#[derive(Debug)]
struct Node {
    step: Step,
    children: Vec<NodeId>,
    /// The child that the last stack went to.
    latest: Option<NodeId>,
    /// Stacks that go through here.
    count: usize,
    /// Stacks that end here, by their place in `Merge::all_who`.
    ended: Vec<u32>,
}

/// A tree in the making.
#[derive(Debug, Default)]
pub struct Merge {
    all_who: Vec<TargetLabel>,
    texts: HashMap<String, u32>,
    places: HashMap<FrameKey, u32>,
    frames: Vec<ReportedFrame>,
    ends: HashMap<LeafState, u32>,
    nodes: Vec<Node>,
    roots: Vec<NodeId>,
    latest: Option<NodeId>,
    steps: HashMap<(Option<NodeId>, Step), NodeId>,
}

/// What makes two frames the same: texts by number.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FrameKey {
    func: u32,
    file: u32,
    lineno: Option<u32>,
    frame_type: FrameType,
}

impl Merge {
    /// Adds a thread of `who`.
    pub fn add(&mut self, who: &TargetLabel, thread: &ReportedThread) {
        let stack = self.all_who.len() as u32;
        self.all_who.push(who.clone());
        let mut at = None;
        for frame in thread.frames.iter().rev() {
            let step = match self.latest_if_same(at, frame) {
                Some(step) => step,
                None => Step::Frame(self.frame(frame)),
            };
            at = Some(self.step(at, step));
        }
        let end = LeafState {
            state: thread.state.clone(),
            gil: thread.gil,
            complete: thread.complete,
        };
        let next = self.ends.len() as u32;
        let end = *self.ends.entry(end).or_insert(next);
        let leaf = self.step(at, Step::End(end));
        self.nodes[leaf as usize].ended.push(stack);
    }

    /// The step that the stack before took from here, if it leads to this frame: most stacks are like the one before,
    /// and a look at two texts costs less than finding them among all.
    fn latest_if_same(&self, from: Option<NodeId>, frame: &ReportedFrame) -> Option<Step> {
        let latest = match from {
            Some(from) => self.nodes[from as usize].latest?,
            None => self.latest?,
        };
        let step @ Step::Frame(known) = self.nodes[latest as usize].step else {
            return None;
        };
        let known = &self.frames[known as usize];
        let same = known.lineno == frame.lineno
            && known.func == frame.func
            && known.file == frame.file
            && known.frame_type == frame.frame_type;
        same.then_some(step)
    }

    fn frame(&mut self, frame: &ReportedFrame) -> u32 {
        let place = FrameKey {
            func: self.text(&frame.func),
            file: self.text(&frame.file),
            lineno: frame.lineno,
            frame_type: frame.frame_type,
        };
        let frames = &mut self.frames;
        *self.places.entry(place).or_insert_with(|| {
            frames.push(frame.clone());
            frames.len() as u32 - 1
        })
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(known) = self.texts.get(text) {
            return *known;
        }
        let next = self.texts.len() as u32;
        self.texts.insert(text.to_owned(), next);
        next
    }

    fn step(&mut self, from: Option<NodeId>, step: Step) -> NodeId {
        let next = self.nodes.len() as NodeId;
        let id = *self.steps.entry((from, step)).or_insert(next);
        if id == next {
            self.nodes.push(Node {
                step,
                children: Vec::new(),
                latest: None,
                count: 0,
                ended: Vec::new(),
            });
        }
        let (children, latest) = match from {
            Some(from) => {
                let node = &mut self.nodes[from as usize];
                (&mut node.children, &mut node.latest)
            }
            None => (&mut self.roots, &mut self.latest),
        };
        if id == next {
            children.push(id);
        }
        *latest = Some(id);
        self.nodes[id as usize].count += 1;
        id
    }

    /// The tree of all that was added; `None` when nothing was.
    pub fn tree(mut self) -> Option<Tree> {
        let roots = std::mem::take(&mut self.roots);
        if roots.is_empty() {
            return None;
        }
        let ends: HashMap<u32, LeafState> = self.ends.drain().map(|(end, id)| (id, end)).collect();
        let mut growth = Growth {
            merge: &self,
            ends,
            order: Vec::with_capacity(self.all_who.len()),
            stacks: Vec::with_capacity(self.all_who.len()),
        };
        let trunk = growth.branch(&roots, 0, false);
        Some(Tree {
            order: growth.order,
            stacks: growth.stacks,
            trunk,
        })
    }
}

/// Turns nodes into branches.
struct Growth<'a> {
    merge: &'a Merge,
    ends: HashMap<u32, LeafState>,
    order: Vec<TargetLabel>,
    stacks: Vec<u32>,
}

impl Growth<'_> {
    /// All whose stacks end at a node.
    fn take(&mut self, ended: &[u32]) {
        let all_who = ended
            .iter()
            .map(|stack| self.merge.all_who[*stack as usize].clone());
        self.order.extend(all_who);
        self.stacks.extend(ended);
    }

    /// The branch that begins with one of `nexts`: follows it until it ends or parts.
    fn branch(&mut self, nexts: &[NodeId], depth: usize, odd: bool) -> Branch {
        let began = self.order.len();
        let mut frames = Vec::new();
        let mut nexts = nexts;
        let then = loop {
            let [only] = nexts else {
                break self.parts(nexts, depth, odd);
            };
            let node = &self.merge.nodes[*only as usize];
            match node.step {
                Step::Frame(frame) => frames.push(self.merge.frames[frame as usize].clone()),
                Step::End(end) => {
                    self.take(&node.ended);
                    break self
                        .ends
                        .get(&end)
                        .map_or(BranchEnd::TooDeep, |end| BranchEnd::End(end.clone()));
                }
            }
            nexts = &node.children;
        };
        Branch {
            frames,
            then,
            odd,
            members: began..self.order.len(),
        }
    }

    fn parts(&mut self, nexts: &[NodeId], depth: usize, odd: bool) -> BranchEnd {
        if depth == MAX_DEPTH {
            self.everybody_below(nexts);
            return BranchEnd::TooDeep;
        }
        let count = |id: &NodeId| self.merge.nodes[*id as usize].count;
        let mut nexts = nexts.to_vec();
        // Stable, so that those come first that were added first.
        nexts.sort_by_key(|id| std::cmp::Reverse(count(id)));
        let is_odd = if odd {
            vec![false; nexts.len()]
        } else {
            outlier::among(self.merge, &self.ends, &nexts)
        };
        let branches = nexts.iter().zip(is_odd);
        let branches = branches.map(|(id, odd)| self.branch(&[*id], depth + 1, odd));
        BranchEnd::Parts(branches.collect())
    }

    fn everybody_below(&mut self, nexts: &[NodeId]) {
        let mut below = nexts.to_vec();
        while let Some(id) = below.pop() {
            let node = &self.merge.nodes[id as usize];
            self.take(&node.ended);
            below.extend(&node.children);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    /// A thread whose frames are the words of `stack`, outermost first, behind the last of which stands its state.
    fn thread(stack: &str) -> ReportedThread {
        let (calls, state) = stack.rsplit_once(' ').unwrap_or(("", stack));
        let frame = |(depth, call): (usize, &str)| {
            let (func, line) = call.split_once(':').unwrap_or((call, "1"));
            ReportedFrame {
                func: func.into(),
                file: "job.py".into(),
                lineno: line.parse().ok(),
                depth,
                frame_type: FrameType::Python,
                address: None,
                source_file: None,
                source: None,
                locals: None,
                more_locals: 0,
            }
        };
        ReportedThread {
            thread_id: None,
            ident: 1,
            thread_name: None,
            daemon: None,
            main: true,
            state: state.to_owned(),
            gil: GilState::Free,
            gil_holder: None,
            interpreter: None,
            runs_thread: None,
            complete: true,
            missing: None,
            frames: calls
                .split_whitespace()
                .rev()
                .enumerate()
                .map(frame)
                .collect(),
        }
    }

    fn merged<S: AsRef<str>>(stacks: impl IntoIterator<Item = S>) -> Tree {
        let mut merge = Merge::default();
        for (rank, stack) in stacks.into_iter().enumerate() {
            merge.add(&TargetLabel::Rank(rank as u32), &thread(stack.as_ref()));
        }
        merge.tree().unwrap()
    }

    fn drawn(tree: &Tree, branch: &Branch, indent: usize, drawing: &mut String) {
        let frames: Vec<String> = branch
            .frames
            .iter()
            .map(|frame| format!("{}:{}", frame.func, frame.lineno.unwrap_or(0)))
            .collect();
        let end = match &branch.then {
            BranchEnd::End(end) => &end.state,
            BranchEnd::Parts(_) => "parts",
            BranchEnd::TooDeep => "too deep",
        };
        let odd = if branch.odd { " ODD" } else { "" };
        let (who, frames) = (tree.who(branch), frames.join(" "));
        writeln!(drawing, "{:indent$}{who}: [{frames}] {end}{odd}", "").unwrap();
        if let BranchEnd::Parts(branches) = &branch.then {
            for branch in branches {
                drawn(tree, branch, indent + 2, drawing);
            }
        }
    }

    fn drawing(tree: &Tree) -> String {
        let mut drawing = String::new();
        drawn(tree, &tree.trunk, 0, &mut drawing);
        drawing
    }

    #[test]
    fn what_is_common_is_told_once_and_the_odd_one_is_marked() {
        let mut stacks = vec!["main step:9 all_reduce futex"; 8];
        stacks[5] = "main step:7 load read read";
        insta::assert_snapshot!(drawing(&merged(&stacks)), @"
        ranks 0-7: [main:1] parts
          ranks 0-4,6-7: [step:9 all_reduce:1] futex
          rank 5: [step:7 load:1 read:1] read ODD
        ");
    }

    #[test]
    fn one_that_is_stopped_where_the_others_wait_is_the_odd_one() {
        insta::assert_snapshot!(drawing(&merged(["main wait futex", "main wait stopped", "main wait futex"])), @"
        ranks 0-2: [main:1 wait:1] parts
          ranks 0,2: [] futex
          rank 1: [] stopped ODD
        ");
    }

    #[test]
    fn without_a_large_majority_nobody_is_odd() {
        assert!(!drawing(&merged(["main a x", "main b x"])).contains("ODD"));
        let thirds = ["main a x", "main b x", "main c x"];
        assert!(!drawing(&merged(thirds.iter().cycle().take(99))).contains("ODD"));
        // What parts within the odd branch is not marked again.
        let mut stacks = vec!["main a x"; 20];
        stacks.extend(["main b c x", "main b c x", "main b c x", "main b d x"]);
        assert_eq!(drawing(&merged(&stacks)).matches("ODD").count(), 1);
    }

    /// Where running code happens to be says nothing: only who waits, and in which function, does.
    #[test]
    fn nobody_is_odd_by_chance() {
        let odd = |stacks: &[&str]| drawing(&merged(stacks)).matches("ODD").count();
        let among = |usual: &'static str, one: &'static str| {
            let mut stacks = vec![usual; 8];
            stacks[3] = one;
            odd(&stacks)
        };
        // All compute: one is at another line, or in another function.
        assert_eq!(among("main step:9 running", "main step:7 running"), 0);
        assert_eq!(among("main step:9 running", "main step load running"), 0);
        assert_eq!(among("main step:9 running", "main step load read"), 0);
        // All wait in the same function, which two lines call, or in which one is on a CPU just now.
        let usual = "main step:9 reduce:3 futex";
        assert_eq!(among(usual, "main step:7 reduce:3 futex"), 0);
        assert_eq!(among(usual, "main step:9 reduce:4 futex"), 0);
        assert_eq!(among(usual, "main step:9 reduce:3 running"), 0);
        assert_eq!(among(usual, "main step:9 reduce:3 poll"), 0);
        // One does not wait there: it computes, waits elsewhere, has ended, or is stopped.
        assert_eq!(among(usual, "main step:9 running"), 1);
        assert_eq!(among(usual, "main step:7 running"), 1);
        assert_eq!(among(usual, "main step:9 load:1 read"), 1);
        assert_eq!(among(usual, "main step:9 reduce:3 inner running"), 1);
        assert_eq!(among(usual, "main step:9 reduce:3 stopped"), 1);
        assert_eq!(among("main wait stopped", "main wait futex"), 1);
        // Of those that wait, two run by chance: they are still enough.
        let mut stacks = vec!["main step:9 reduce:3 futex"; 12];
        stacks[1] = "main step:9 reduce:4 running";
        stacks[2] = "main step:9 reduce:5 running";
        stacks[5] = "main step:2 load running";
        insta::assert_snapshot!(drawing(&merged(&stacks)), @"
        ranks 0-11: [main:1] parts
          ranks 0-4,6-11: [step:9] parts
            ranks 0,3-4,6-11: [reduce:3] futex
            rank 1: [reduce:4] running
            rank 2: [reduce:5] running
          rank 5: [step:2 load:1] running ODD
        ");
        // Too many run: nobody knows where they will wait.
        assert_eq!(
            odd(&["main a running", "main a running", "main a x", "main b x"]),
            0
        );
    }

    #[test]
    fn stacks_without_a_frame_in_common_part_at_the_trunk() {
        insta::assert_snapshot!(drawing(&merged(["a x", "b x", "x"])), @"
        ranks 0-2: [] parts
          rank 0: [a:1] x
          rank 1: [b:1] x
          rank 2: [] x
        ");
    }

    /// Ten thousand ranks, a hundred frames deep; every thousandth is elsewhere. Even and odd ranks part early, so that
    /// the ranks of a branch are as many ranges as they can be.
    #[test]
    fn ten_thousand_ranks_take_no_more_than_their_tree() {
        let tail: String = (0..98).map(|depth| format!("layer{depth} ")).collect();
        let threads = ["reduce", "load"]
            .map(|way| [1, 2].map(|half| thread(&format!("main half:{half} {tail}{way} futex"))));
        let mut merge = Merge::default();
        for rank in 0..10_000u32 {
            let way = usize::from(rank % 1000 == 7);
            merge.add(&TargetLabel::Rank(rank), &threads[way][rank as usize % 2]);
        }
        // main, two halves of 98 frames, "reduce" twice and "load" once, each with an end.
        assert_eq!(merge.nodes.len(), 1 + 2 * 99 + 2 * 3);
        assert_eq!((merge.frames.len(), merge.steps.len()), (103, 205));
        let kept: usize = merge
            .nodes
            .iter()
            .map(|node| node.ended.len() + node.children.len())
            .sum();
        assert_eq!(kept, 10_000 + 204);
        let tree = merge.tree().unwrap();
        assert_eq!((tree.order.len(), tree.group().count()), (10_000, 10_000));
        assert!(drawing(&tree).contains(
            "    ranks 7,1007,2007,3007,4007,5007,6007,7007,8007,9007: [load:1] futex ODD\n"
        ));
    }

    #[test]
    fn stacks_that_part_at_every_depth_still_end() {
        let stacks = (1..1000).map(|depth| "f ".repeat(depth) + "x");
        let tree = merged(stacks);
        assert_eq!(tree.group().count(), 999);
        assert!(drawing(&tree).contains("too deep"));
    }

    fn told(tree: &Tree, branch: &Branch, before: &str, told: &mut BTreeSet<(String, String)>) {
        let frames = branch.frames.iter().map(|frame| format!("{} ", frame.func));
        let path = before.to_owned() + &frames.collect::<String>();
        match &branch.then {
            BranchEnd::End(end) => {
                told.insert((format!("{path}{}", end.state), tree.who(branch).to_string()));
            }
            BranchEnd::Parts(branches) => branches
                .iter()
                .for_each(|branch| self::tests::told(tree, branch, &path, told)),
            BranchEnd::TooDeep => panic!("not with so few frames"),
        }
    }

    proptest! {
        #[test]
        fn the_tree_tells_every_stack_and_whose_it_is(
            stacks in prop::collection::vec("([abc] ){0,5}[xy]", 1..12)
        ) {
            let mut seen = BTreeSet::new();
            let tree = merged(&stacks);
            told(&tree, &tree.trunk, "", &mut seen);
            let expected: BTreeSet<(String, String)> = stacks.iter().map(|stack| {
                let same = (0..stacks.len()).filter(|rank| stacks[*rank] == *stack);
                let who: Vec<TargetLabel> = same.map(|rank| TargetLabel::Rank(rank as u32)).collect();
                (stack.clone(), who.iter().collect::<Group>().to_string())
            }).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
