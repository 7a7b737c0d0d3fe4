//! A tree of stacks as a terminal shows it, and as JSON tells it.

use anstyle::{AnsiColor, Style};
use probing_client::{Branch, End, Then, Tree};
use probing_proto::report::{ReportedBranch, ReportedCall, ReportedEnd, ReportedTree};

use super::set::NamedTree;
use super::{text, variables};

/// Names of threads with one tree that are written out; of more, the first and the last.
const NAMES_SHOWN: usize = 4;
const ODD: Style = Style::new()
    .bold()
    .fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow)));

pub(super) fn text(named: &NamedTree<'_>) -> String {
    let tree = &named.tree;
    let group = tree.group();
    let mut text = format!(
        "{} of {}: {group}{} (most recent call last)\n",
        names(&named.threads),
        group.count(),
        state(&tree.trunk)
    );
    below(named, &tree.trunk, Margin::default(), &mut text);
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

/// The frames of a branch, then its branches.
fn below(named: &NamedTree<'_>, branch: &Branch, margin: Margin, text: &mut String) {
    let tree = &named.tree;
    let mut line = |line: &str| {
        text.push_str(&margin.text);
        text.push_str(line);
        text.push('\n');
    };
    for (index, frame) in branch.frames.iter().enumerate() {
        let mut frame = frame.clone();
        (frame.locals, frame.more_locals) = (None, 0);
        if !named.stacks.is_empty() {
            frame.locals = Some(variables::of(named, branch, margin.above + index));
        }
        text::frame(&frame).lines().for_each(&mut line);
    }
    let above = margin.above + branch.frames.len();
    let margin = margin.text.as_str();
    let branches = match &branch.then {
        Then::Parts(branches) => branches,
        Then::End(End { complete: true, .. }) => return,
        Then::End(_) => return line("  … it moves too fast to be seen whole"),
        Then::TooDeep => return line("  … from here on everyone goes another way"),
    };
    let all = tree.group().count();
    for (place, branch) in branches.iter().enumerate() {
        let is_last = place + 1 == branches.len();
        let (fork, inner) = if is_last {
            ("└─", "  ")
        } else {
            ("├─", "│ ")
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
        below(named, branch, margin, text);
    }
}

/// What all on this branch do, if it is the same.
fn state(branch: &Branch) -> String {
    match &branch.then {
        Then::End(end) => {
            // Behind the frames of the branch above.
            let here = if branch.frames.is_empty() {
                " here"
            } else {
                ""
            };
            format!(", {}{here}", text::state(&end.state, end.gil))
        }
        Then::Parts(_) | Then::TooDeep => String::new(),
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
        Then::End(End {
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
        Then::Parts(branches) => {
            let branches = branches.iter().map(|branch| reported(tree, branch));
            (None, branches.collect())
        }
        Then::TooDeep => (None, Vec::new()),
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
