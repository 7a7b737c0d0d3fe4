//! A tree of stacks as text and as JSON.

use anstyle::AnsiColor;
use probing_client::{Branch, BranchEnd, LeafState, Tree};
use probing_proto::report::{
    ReportedBranch, ReportedCall, ReportedEnd, ReportedFrame, ReportedTree, state_words,
};

use crate::commands::backtrace::set::NamedTree;
use crate::commands::backtrace::{text, variables};
use crate::terminal::Style;

/// Names of threads with one tree that are written out; of more, the first and the last.
const NAMES_SHOWN: usize = 4;
const ODD: Style = Style::new().bold().coloured(AnsiColor::Yellow);

/// Outermost frames first, which all have in common; or, in reverse, last.
pub(super) fn text(named: &NamedTree<'_>, reverse: bool) -> String {
    let tree = &named.tree;
    let group = tree.group();
    let mut text = format!(
        "{} of {}: {group}{} (most recent call {})\n",
        names(&named.threads),
        group.count(),
        state(&tree.trunk),
        if reverse { "first" } else { "last" }
    );
    let drawing = Drawing { named, reverse };
    drawing.add(&tree.trunk, &Margin::default(), &mut text);
    text
}

/// What every line of a branch begins with, and how many frames are above it.
#[derive(Clone, Default)]
struct Margin {
    text: String,
    above: usize,
}

fn names(threads: &[String]) -> String {
    match threads {
        [one] => format!("Thread {one}"),
        few if few.len() <= NAMES_SHOWN => format!("Threads {}", few.join(", ")),
        [first, .., last] => format!("{} threads ({first} … {last})", threads.len()),
        [] => String::new(),
    }
}

struct Drawing<'a> {
    named: &'a NamedTree<'a>,
    reverse: bool,
}

impl Drawing<'_> {
    /// The frames of a branch, then its branches; in reverse, the other way round.
    fn add(&self, branch: &Branch, margin: &Margin, text: &mut String) {
        let end = match &branch.then {
            BranchEnd::Parts(_) | BranchEnd::End(LeafState { complete: true, .. }) => "",
            BranchEnd::End(_) => "  … its stack changed during the read",
            BranchEnd::TooDeep => "  … from here on all stacks differ",
        };
        let frames = branch.frames.iter().enumerate();
        let mut frames: Vec<String> = frames
            .map(|(index, frame)| self.frame(branch, frame, margin.above + index))
            .collect();
        frames.push(end.to_owned());
        if self.reverse {
            frames.reverse();
            self.add_branches(branch, margin, text);
        }
        for line in frames.iter().flat_map(|frame| frame.lines()) {
            text.push_str(&format!("{}{line}\n", margin.text));
        }
        if !self.reverse {
            self.add_branches(branch, margin, text);
        }
    }

    /// The frame with this number of frames above it.
    fn frame(&self, branch: &Branch, frame: &ReportedFrame, above: usize) -> String {
        let mut frame = frame.clone();
        (frame.locals, frame.more_locals) = (None, 0);
        if !self.named.stacks.is_empty() {
            frame.locals = Some(variables::merge_locals(self.named, branch, above));
        }
        text::frame(&frame)
    }

    fn add_branches(&self, branch: &Branch, margin: &Margin, text: &mut String) {
        let BranchEnd::Parts(branches) = &branch.then else {
            return;
        };
        let tree = &self.named.tree;
        let (all, above) = (tree.group().count(), margin.above + branch.frames.len());
        let margin = &margin.text;
        for (place, branch) in branches.iter().enumerate() {
            let (fork, inner) = match () {
                () if self.reverse && place == 0 => ("┌─", "│ "),
                () if !self.reverse && place + 1 == branches.len() => ("└─", "  "),
                () => ("├─", "│ "),
            };
            let group = tree.who(branch);
            let (style, mark) = if branch.odd {
                (ODD, "  ← odd one out")
            } else {
                (Style::new(), "")
            };
            let head = format!(
                "  {fork} {style}{} of {all}: {group}{}{mark}{style:#}",
                group.count(),
                state(branch)
            );
            text.push_str(&format!("{margin}{head}\n"));
            let margin = Margin {
                text: format!("{margin}  {inner} "),
                above,
            };
            self.add(branch, &margin, text);
        }
    }
}

/// What all on this branch do, if it is the same.
fn state(branch: &Branch) -> String {
    match &branch.then {
        BranchEnd::End(end) => {
            // Behind the frames of the branch above.
            let here = if branch.frames.is_empty() {
                " here"
            } else {
                ""
            };
            format!(", {}{here}", state_words(&end.state, end.gil))
        }
        BranchEnd::Parts(_) | BranchEnd::TooDeep => String::new(),
    }
}

pub(super) fn report(named: &NamedTree<'_>) -> ReportedTree {
    ReportedTree {
        threads: named.threads.clone(),
        trunk: reported(&named.tree, &named.tree.trunk),
    }
}

fn reported(tree: &Tree, branch: &Branch) -> ReportedBranch {
    let group = tree.who(branch);
    let (end, branches) = match &branch.then {
        BranchEnd::End(LeafState {
            state,
            gil,
            complete,
        }) => {
            let (state, gil, complete) = (state.clone(), *gil, *complete);
            let end = ReportedEnd {
                state,
                gil,
                complete,
            };
            (Some(end), Vec::new())
        }
        BranchEnd::Parts(branches) => {
            let branches = branches.iter().map(|branch| reported(tree, branch));
            (None, branches.collect())
        }
        BranchEnd::TooDeep => (None, Vec::new()),
    };
    let frames = branch.frames.iter().map(|frame| ReportedCall {
        func: frame.func.clone(),
        file: frame.file.clone(),
        lineno: frame.lineno,
        frame_type: frame.frame_type,
        source: frame.source.clone(),
    });
    ReportedBranch {
        count: group.count(),
        ranks: (!group.ranks.is_empty()).then(|| group.ranks.to_string()),
        pids: group.pids,
        odd: branch.odd,
        frames: frames.collect(),
        end,
        branches,
    }
}
