//! Tasks of asyncio as text: a tree of what each awaits, with equal tasks grouped.

use std::collections::{HashMap, HashSet};

use anstyle::AnsiColor;
use probing_proto::report::{
    ReportedFrame, ReportedTask, ReportedWait, TaskProgress, TasksReport, WaitKind,
};

use crate::commands::backtrace::text;
use crate::terminal::Style;
use probing_proto::text::visible;

/// Names of tasks, or ranges of names, that are written out; of more, the first ones and the last.
const NAMES_SHOWN: usize = 4;
/// Deeper trees are cut: nobody reads them, and a circle has no end.
const MAX_DEPTH: usize = 50;
const DEADLOCK: Style = Style::new().bold().coloured(AnsiColor::Red);

pub(super) fn text(report: &TasksReport, reverse: bool) -> String {
    if let Some(words) = nothing(report) {
        return words.to_owned();
    }
    let forest = Forest::new(report, reverse);
    let mut parts = vec![forest.head()];
    parts.extend(
        report
            .deadlocks
            .iter()
            .map(|circle| forest.deadlock(circle)),
    );
    parts.extend(forest.trees());
    parts.join("\n")
}

/// Why there is nothing to show, if there is not.
pub(super) fn nothing(report: &TasksReport) -> Option<&'static str> {
    match report {
        TasksReport { asyncio: false, .. } => Some(
            "no tasks: the program has not imported asyncio (`backtrace --all` shows its threads)\n",
        ),
        TasksReport { tasks, .. } if tasks.is_empty() => Some(
            "no tasks: asyncio has none that is not done (`backtrace --all` shows the threads)\n",
        ),
        _ => None,
    }
}

/// The tasks of a process, by their ids.
struct Forest<'a> {
    report: &'a TasksReport,
    by_id: HashMap<u64, &'a ReportedTask>,
    /// Their places in the order of their names.
    places: HashMap<u64, usize>,
    reverse: bool,
    /// Tasks are on several threads, so each says on which.
    is_threaded: bool,
}

/// What tasks that are shown together have in common.
#[derive(PartialEq, Eq, Hash)]
struct Likeness<'a> {
    coroutine: &'a str,
    state: TaskProgress,
    kind: Option<WaitKind>,
    held_by: &'a [u64],
    awaits_tasks: bool,
    thread: Option<u32>,
    complete: bool,
    frames: &'a [ReportedFrame],
}

impl<'a> Likeness<'a> {
    fn of(task: &'a ReportedTask) -> Self {
        let wait = task.waits_for.as_ref();
        Self {
            coroutine: &task.coroutine,
            state: task.state,
            kind: wait.map(|wait| wait.kind),
            held_by: wait.map_or(&[], |wait| &wait.held_by),
            awaits_tasks: wait.is_some_and(|wait| !wait.tasks.is_empty()),
            thread: task.thread_id,
            complete: task.complete,
            frames: &task.frames,
        }
    }
}

impl<'a> Forest<'a> {
    fn new(report: &'a TasksReport, reverse: bool) -> Self {
        let threads: HashSet<Option<u32>> =
            report.tasks.iter().map(|task| task.thread_id).collect();
        Self {
            report,
            by_id: report.tasks.iter().map(|task| (task.id, task)).collect(),
            places: report
                .tasks
                .iter()
                .zip(0..)
                .map(|(task, place)| (task.id, place))
                .collect(),
            reverse,
            is_threaded: threads.len() > 1,
        }
    }

    fn head(&self) -> String {
        let count = self.report.tasks.len();
        let more = if self.report.complete {
            ""
        } else {
            ", and more that could not be read"
        };
        let word = if count == 1 { "task" } else { "tasks" };
        let order = if self.reverse { "first" } else { "last" };
        format!("{count} asyncio {word}{more} (most recent call {order})\n")
    }

    fn deadlock(&self, circle: &[u64]) -> String {
        let tasks: Vec<&ReportedTask> = self.known(circle);
        let each = tasks.iter().map(|task| {
            visible::line(&format!("{} {}", task.name, self.doing(&[task]))).into_owned()
        });
        let each: Vec<String> = each.collect();
        format!("{DEADLOCK}Deadlock{DEADLOCK:#}: {}\n", each.join("; "))
    }

    fn known(&self, ids: &[u64]) -> Vec<&'a ReportedTask> {
        ids.iter()
            .filter_map(|id| self.by_id.get(id).copied())
            .collect()
    }

    /// Tasks that nobody waits for, with those that they wait for below; then those that only a circle leads to.
    fn trees(&self) -> Vec<String> {
        let tasks = self.report.tasks.iter();
        let (roots, others): (Vec<_>, Vec<_>) = tasks.partition(|task| self.is_root(task));
        let mut shown: HashSet<u64> = roots.iter().map(|task| task.id).collect();
        let mut trees = Vec::new();
        let mut plant = |roots: Vec<&'a ReportedTask>, shown: &mut HashSet<u64>| {
            for group in alike(roots) {
                let mut text = format!("{}\n", self.title(&group, None));
                self.below(&group, "", 0, shown, &mut text);
                trees.push(text);
            }
        };
        plant(roots, &mut shown);
        for task in others {
            if shown.insert(task.id) {
                plant(vec![task], &mut shown);
            }
        }
        trees
    }

    fn is_root(&self, task: &ReportedTask) -> bool {
        !task.awaited_by.iter().any(|id| self.by_id.contains_key(id))
    }

    /// The frames of a group, then the tasks that it waits for; every line begins with `margin`.
    fn below(
        &self,
        group: &[&'a ReportedTask],
        margin: &str,
        depth: usize,
        shown: &mut HashSet<u64>,
        text: &mut String,
    ) {
        let task = group[0];
        let mut frames: Vec<String> = task.frames.iter().map(text::frame).collect();
        if !task.complete {
            frames.insert(0, "  … its stack changed during the read\n".to_owned());
        }
        if !self.reverse {
            frames.reverse();
        }
        for line in frames.iter().flat_map(|frame| frame.lines()) {
            text.push_str(&format!("{margin}{line}\n"));
        }
        let awaited = group.iter().filter_map(|task| task.waits_for.as_ref());
        let awaited = awaited.flat_map(|wait| self.known(&wait.tasks));
        let mut awaited: Vec<&ReportedTask> =
            awaited.filter(|task| shown.insert(task.id)).collect();
        if depth >= MAX_DEPTH {
            return;
        }
        awaited.sort_by_key(|task| self.places.get(&task.id));
        let groups = alike(awaited);
        for (place, group) in groups.iter().enumerate() {
            let is_last = place + 1 == groups.len();
            let (fork, inner) = if is_last {
                ("└─", "  ")
            } else {
                ("├─", "│ ")
            };
            text.push_str(&format!(
                "{margin}  {fork} {}\n",
                self.title(group, Some(task))
            ));
            self.below(
                group,
                &format!("{margin}  {inner} "),
                depth + 1,
                shown,
                text,
            );
        }
    }

    /// `Task rent (transfer), waits for a lock that refund holds`. The thread is told where it is another than above.
    fn title(&self, group: &[&ReportedTask], above: Option<&ReportedTask>) -> String {
        let task = group[0];
        let is_told = above.map_or(self.is_threaded, |above| above.thread_id != task.thread_id);
        let place = if is_told || task.state == TaskProgress::Running {
            format!(", {}", thread(task))
        } else {
            String::new()
        };
        let (names, doing) = (names(group), self.doing(group));
        visible::line(&format!("{names} ({}), {doing}{place}", task.coroutine)).into_owned()
    }

    /// What all of a group do.
    fn doing(&self, group: &[&ReportedTask]) -> String {
        let task = group[0];
        match (task.state, &task.waits_for) {
            (TaskProgress::Running, _) => self.running(task),
            (TaskProgress::Ready, _) => "ready to run".to_owned(),
            (TaskProgress::Waiting, None) => "waits".to_owned(),
            (TaskProgress::Waiting, Some(wait)) => self.waiting(group, wait),
        }
    }

    /// Those of the same loop that could run wait for it.
    fn running(&self, task: &ReportedTask) -> String {
        let could = |other: &&ReportedTask| {
            other.state == TaskProgress::Ready && other.thread_id == task.thread_id
        };
        match self.report.tasks.iter().filter(could).count() {
            0 => "runs now".to_owned(),
            1 => "runs now, while another is ready".to_owned(),
            count => format!("runs now, while {count} others are ready"),
        }
    }

    fn waiting(&self, group: &[&ReportedTask], wait: &ReportedWait) -> String {
        let what = match wait.kind {
            WaitKind::Sleep => return "sleeps".to_owned(),
            WaitKind::Task
            | WaitKind::Shield
            | WaitKind::Gather
            | WaitKind::TaskGroup
            | WaitKind::Any => {
                return self.awaiting(group, wait);
            }
            WaitKind::Lock => {
                let holders = self.known(&wait.held_by);
                return format!("waits for a lock{}", holding(&holders));
            }
            WaitKind::Event => "an event",
            WaitKind::Condition => "a condition",
            WaitKind::Semaphore => "a semaphore",
            WaitKind::Barrier => "others at a barrier",
            WaitKind::QueueGet => "an item of a queue",
            WaitKind::QueuePut => "room in a queue",
            WaitKind::QueueJoin => "a queue to be emptied",
            WaitKind::Thread => "a thread of the executor",
            WaitKind::Stream => "a stream",
            WaitKind::Socket => "a socket",
            WaitKind::Process => "a process to end",
            WaitKind::Future => "a future",
        };
        format!("waits for {what}")
    }

    /// Waiting for other tasks.
    fn awaiting(&self, group: &[&ReportedTask], wait: &ReportedWait) -> String {
        let how = match wait.kind {
            WaitKind::Gather => " (gather)",
            WaitKind::TaskGroup => " (TaskGroup)",
            WaitKind::Any => " (asyncio.wait)",
            WaitKind::Shield => " (shield)",
            _ => "",
        };
        let waits = group.iter().filter_map(|task| task.waits_for.as_ref());
        let tasks: HashSet<u64> = waits.flat_map(|wait| wait.tasks.iter().copied()).collect();
        match self.known(&wait.tasks).as_slice() {
            [one] if tasks.len() == 1 => format!("waits for {}{how}", one.name),
            _ if tasks.is_empty() => format!("waits for futures{how}"),
            _ => format!("waits for {} tasks{how}", tasks.len()),
        }
    }
}

/// `Task rent`, `3 tasks: main, worker-0 … worker-1`
fn names(group: &[&ReportedTask]) -> String {
    if let [task] = group {
        let is_title = task.name.starts_with("Task-");
        return if is_title {
            task.name.clone()
        } else {
            format!("Task {}", task.name)
        };
    }
    // They come in the order of their names, so those that differ in their numbers only are neighbours.
    let stem = |task: &&&ReportedTask| {
        task.name
            .trim_end_matches(|c: char| c.is_ascii_digit())
            .to_owned()
    };
    let mut ranges: Vec<(String, &str, &str)> = Vec::new();
    for task in group {
        let stem = stem(&task);
        match ranges.last_mut() {
            Some((known, _, last)) if *known == stem => *last = &task.name,
            _ => ranges.push((stem, &task.name, &task.name)),
        }
    }
    let shown = ranges.iter().map(|(_, first, last)| {
        if first == last {
            (*first).to_owned()
        } else {
            format!("{first} … {last}")
        }
    });
    let mut shown: Vec<String> = shown.collect();
    if shown.len() > NAMES_SHOWN {
        shown.splice(NAMES_SHOWN - 1..shown.len() - 1, ["…".to_owned()]);
    }
    format!("{} tasks: {}", group.len(), shown.join(", "))
}

/// Who holds a lock, as far as it is known.
fn holding(holders: &[&ReportedTask]) -> String {
    let names: Vec<&str> = holders.iter().map(|task| &*task.name).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!(" that {one} holds"),
        several => format!(" that {} hold", several.join(", ")),
    }
}

fn thread(task: &ReportedTask) -> String {
    match (&task.thread_name, task.thread_id) {
        (Some(name), Some(id)) => format!("thread {name} ({id})"),
        (Some(name), None) => format!("thread {name}"),
        (None, Some(id)) => format!("thread {id}"),
        (None, None) => "thread not known".to_owned(),
    }
}

/// Tasks that look the same together, in the order of their first.
fn alike(tasks: Vec<&ReportedTask>) -> Vec<Vec<&ReportedTask>> {
    let mut groups: Vec<Vec<&ReportedTask>> = Vec::new();
    let mut known: HashMap<Likeness<'_>, usize> = HashMap::new();
    for task in tasks {
        let place = *known.entry(Likeness::of(task)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(task),
            None => groups.push(vec![task]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(name: &str) -> ReportedTask {
        ReportedTask {
            name: name.to_owned(),
            id: 0,
            state: TaskProgress::Ready,
            coroutine: "run".to_owned(),
            awaited_by: Vec::new(),
            waits_for: None,
            thread_id: None,
            thread_name: None,
            complete: true,
            frames: Vec::new(),
        }
    }

    #[test]
    fn names_that_differ_in_their_numbers_are_a_range() {
        let check = |all: &[&str], text: &str| {
            let tasks: Vec<ReportedTask> = all.iter().map(|name| task(name)).collect();
            assert_eq!(names(&tasks.iter().collect::<Vec<_>>()), text);
        };
        check(&["rent"], "Task rent");
        check(&["Task-7"], "Task-7");
        check(&["a", "b"], "2 tasks: a, b");
        check(
            &["Task-2", "w-0", "w-1", "w-2"],
            "4 tasks: Task-2, w-0 … w-2",
        );
        check(&["a", "b", "c", "d", "e"], "5 tasks: a, b, c, …, e");
    }
}
