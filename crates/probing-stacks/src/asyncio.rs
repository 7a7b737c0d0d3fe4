//! The asyncio tasks of a process, with what each awaits.
//!
//! Where asyncio keeps its tasks (`registry`) leads to each of them (`task`), to the coroutines that it is made of
//! (`coroutines`) and to what it waits for (`waits`). A task is believed when two readings agree; one that runs is shown
//! with the stack of its thread. Tasks that wait for each other are found at the end (`circles`).

mod circles;
mod coroutines;
mod registry;
mod task;
mod waits;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use probing_process::access::source::Kernel;

use self::coroutines::AwaitChainEnd;
use self::registry::{Classes, Registry};
use self::task::RawTask;
use self::waits::Waits;
use crate::consistency::Reading;
use crate::error::StackError;
use crate::locals::Innermost;
use crate::memory::{Bounded, Memory};
use crate::python::code::Codes;
use crate::python::frames::RawFrame;
use crate::python::interpreter::Interpreter;
use crate::python::objects::{Gap, Integer, Objects};
use crate::python::thread_states::Thread;
use crate::snapshot::{self, MAX_READ, MatchedThread, Reader};
use crate::{Frame, FrameGap, Options, ThreadStack};

pub(crate) use self::registry::Lists;
pub use self::waits::WaitKind;

/// More are counted but not shown.
const MAX_TASKS: usize = 100_000;
/// Readings of tasks that change meanwhile.
const TRIES: usize = 6;

/// The asyncio tasks of a process that are not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tasks {
    /// Major and minor version.
    pub python: (u8, u8),
    /// Whether the program has imported asyncio at all.
    pub is_imported: bool,
    /// In the order of their names.
    pub tasks: Vec<AsyncTask>,
    /// There are more tasks than these, or some could not be read.
    pub is_cut: bool,
    /// Tasks, by their ids, that wait for each other in a circle.
    pub circles: Vec<Vec<u64>>,
    pub took: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsyncTask {
    /// `id(task)`
    pub id: u64,
    pub name: String,
    /// The function that it runs.
    pub coroutine: Arc<str>,
    pub state: TaskState,
    /// What it waits for, if it does.
    pub wait: Option<Wait>,
    /// Tasks, by their ids, that wait for it.
    pub awaited_by: Vec<u64>,
    /// The thread of its loop: the kernel's id and the name, as far as they are known.
    pub thread: Option<(Option<u32>, Option<String>)>,
    /// False for a task that changed each time it was read: then only the frames that stayed are here.
    pub complete: bool,
    /// Innermost first. Of a task that runs, all frames of its thread down to the task's coroutine.
    pub frames: Vec<Frame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskState {
    /// Its code runs now, or blocks its thread.
    Running,
    Waiting,
    /// It resumes, or begins, when its loop comes to it.
    Ready,
}

/// What a task waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    pub kind: WaitKind,
    /// Tasks, by their ids, that are not done.
    pub tasks: Vec<u64>,
    /// For a lock: tasks that are inside its `async with`.
    pub held_by: Vec<u64>,
}

impl Reader {
    /// Reads all asyncio tasks.
    pub fn tasks(&mut self, options: &Options) -> Result<Tasks, StackError> {
        let began = Instant::now();
        let layout = &self.interpreter.layout;
        if layout.free_threaded {
            return Err(StackError::NoTasks {
                pid: self.source.pid(),
            });
        }
        let python = layout.version;
        let lists = if python.1 >= 14 {
            Lists::find(&*self.source)
        } else {
            None
        };
        self.codes.keep_small();
        let memory = Bounded::new(&*self.source, MAX_READ);
        let known = self.threads(&memory, options)?;
        let reading = Reading::new(&self.interpreter, &memory, &self.possible(options), began);
        let found = read(&*self.source, &reading, &mut self.codes, &known, lists);
        Ok(Tasks {
            python,
            took: began.elapsed(),
            ..found
        })
    }
}

/// All but the kernel's part: without a name of the version and the time it took.
pub(crate) fn read<M: Memory + ?Sized>(
    kernel: &dyn Kernel,
    reading: &Reading<'_, M>,
    codes: &mut Codes,
    known: &[MatchedThread],
    lists: Option<Lists>,
) -> Tasks {
    let threads: Vec<Thread> = known.iter().map(|known| known.thread.clone()).collect();
    let (interpreter, memory) = (reading.interpreter, reading.memory);
    let registries = registry::read_registries(interpreter, memory, &threads, lists, MAX_TASKS);
    let mut found = settle(interpreter, memory, &registries);
    let stacks = with_running(kernel, reading, codes, known, &mut found);
    codes.forget_failures();
    let links = found.iter().flat_map(|found| &found.raw.awaits.links);
    codes.load(interpreter, memory, links.map(|link| link.frame.code));
    let told = TaskContext::look(interpreter, memory, codes, &found);
    let named = Named::new(reading, codes, &found, &stacks);
    let mut tasks: Vec<AsyncTask> = found
        .iter()
        .zip(told.waits)
        .map(|(found, wait)| found.named(&named, &told.idents, wait))
        .collect();
    connect(&mut tasks);
    tasks.sort_by_cached_key(|task| (by_number(&task.name), task.id));
    Tasks {
        python: interpreter.layout.version,
        is_imported: !registries.is_empty(),
        is_cut: registries.iter().any(|registry| registry.is_cut),
        circles: find_circles(&tasks),
        tasks,
        took: Duration::ZERO,
    }
}

/// A task and how it was found.
#[derive(Debug)]
struct FoundTask {
    classes: Classes,
    raw: RawTask,
    /// Two readings agreed.
    is_settled: bool,
}

/// Reads tasks until two readings of each agree.
fn settle<M: Memory + ?Sized>(
    interpreter: &Interpreter,
    memory: &M,
    registries: &[Registry],
) -> Vec<FoundTask> {
    let tasks_of = |registered: &Registry| {
        let classes = registered.classes;
        registered
            .tasks
            .clone()
            .into_iter()
            .map(move |task| (classes, task))
    };
    let mut open: Vec<(Classes, u64)> = registries.iter().flat_map(tasks_of).collect();
    open.truncate(MAX_TASKS);
    let (mut found, mut last) = (Vec::new(), HashMap::new());
    for _ in 0..TRIES {
        let mut objects = Objects::new(interpreter, memory);
        let firsts = objects.each(&open, |view, (classes, task)| {
            task::look(view, classes, *task)
        });
        let copied = objects.again(memory);
        let view = copied.view();
        let mut again = Vec::new();
        for (key, first) in open.into_iter().zip(firsts) {
            let (classes, address) = key;
            match (first.flatten(), task::look(&view, &classes, address)) {
                (Some(first), Ok(Some(raw))) if raw.agrees_with(&first) => {
                    last.remove(&address);
                    let is_settled = true;
                    found.push(FoundTask {
                        classes,
                        raw,
                        is_settled,
                    });
                }
                // Done, or not a task after all.
                (None, Ok(None) | Err(Gap::Wrong)) => drop(last.remove(&address)),
                (first, second) => {
                    let raw = second.ok().flatten().or(first);
                    last.extend(raw.map(|raw| (address, raw)));
                    again.push(key);
                }
            }
        }
        open = again;
        if open.is_empty() {
            break;
        }
    }
    let left = open.into_iter().filter_map(|(classes, address)| {
        let raw = last.remove(&address)?;
        let is_settled = false;
        Some(FoundTask {
            classes,
            raw,
            is_settled,
        })
    });
    found.extend(left);
    found
}

/// The stacks of all threads, in which those tasks are that run. One that is not there has stopped running: it is read
/// again.
fn with_running<M: Memory + ?Sized>(
    kernel: &dyn Kernel,
    reading: &Reading<'_, M>,
    codes: &mut Codes,
    known: &[MatchedThread],
    found: &mut Vec<FoundTask>,
) -> Vec<ThreadStack> {
    let mut stacks = Vec::new();
    for _ in 0..TRIES {
        stacks = snapshot::stacks(kernel, reading, codes, known.to_vec()).0;
        let frames: HashSet<u64> = stacks
            .iter()
            .flat_map(|stack| stack.frames.iter().map(|frame| frame.address))
            .collect();
        let is_lost = |found: &FoundTask| {
            let root = found.raw.root();
            found.raw.awaits.end == AwaitChainEnd::Running
                && !root.is_some_and(|root| frames.contains(&root))
        };
        let lost: Vec<usize> = (0..found.len())
            .filter(|index| is_lost(&found[*index]))
            .collect();
        if lost.is_empty() || Instant::now() > reading.until {
            break;
        }
        let keys: Vec<(Classes, u64)> = lost
            .iter()
            .map(|index| (found[*index].classes, found[*index].raw.address))
            .collect();
        let mut objects = Objects::new(reading.interpreter, reading.memory);
        let results = objects.each(&keys, |view, (classes, task)| {
            task::look(view, classes, *task)
        });
        let mut done = HashSet::new();
        for ((index, (_, address)), result) in lost.iter().zip(keys).zip(results) {
            match result.flatten() {
                Some(raw) => found[*index].raw = raw,
                None => drop(done.insert(address)),
            }
        }
        found.retain(|found| !done.contains(&found.raw.address));
    }
    stacks
}

/// What objects around the tasks tell.
struct TaskContext {
    /// Of each task.
    waits: Vec<Option<Wait>>,
    /// `threading.get_ident()` of the thread of each loop.
    idents: HashMap<u64, u64>,
}

impl TaskContext {
    fn look<M: Memory + ?Sized>(
        interpreter: &Interpreter,
        memory: &M,
        codes: &Codes,
        found: &[FoundTask],
    ) -> Self {
        let mut objects = Objects::new(interpreter, memory);
        let waits = objects.each(found, |view, found| {
            waits::look(view, &found.classes, codes, &found.raw)
        });
        let waits: Vec<Option<Waits>> = waits.into_iter().map(Option::flatten).collect();
        let mut locks: Vec<u64> = waits
            .iter()
            .flatten()
            .filter_map(|waits| waits.lock)
            .collect();
        locks.sort_unstable();
        locks.dedup();
        let mut holders: HashMap<u64, Vec<u64>> = HashMap::new();
        if !locks.is_empty() {
            let held = objects.each(found, |view, found| {
                waits::held(view, codes, &locks, &found.raw.awaits.links)
            });
            for (found, held) in found.iter().zip(held) {
                for lock in held.into_iter().flatten() {
                    holders.entry(lock).or_default().push(found.raw.address);
                }
            }
        }
        let mut loops: Vec<u64> = found.iter().map(|found| found.raw.event_loop).collect();
        loops.sort_unstable();
        loops.dedup();
        let idents = objects.each(&loops, |view, event_loop| {
            let ident = view
                .attribute(*event_loop, "_thread_id")?
                .ok_or(Gap::Wrong)?;
            match view.integer(ident)? {
                Integer::Small(number) => u64::try_from(number).map_err(|_not_one| Gap::Wrong),
                Integer::Written(_) | Integer::Bits(_) => Err(Gap::Wrong),
            }
        });
        let known: HashSet<u64> = found.iter().map(|found| found.raw.address).collect();
        let wait = |waits: Waits| Wait {
            kind: waits.kind,
            tasks: waits
                .tasks
                .into_iter()
                .filter(|task| known.contains(task))
                .collect(),
            held_by: waits
                .lock
                .and_then(|lock| holders.get(&lock).cloned())
                .unwrap_or_default(),
        };
        Self {
            waits: waits.into_iter().map(|waits| waits.map(wait)).collect(),
            idents: loops
                .into_iter()
                .zip(idents)
                .filter_map(|(event_loop, ident)| Some((event_loop, ident?)))
                .collect(),
        }
    }
}

/// Frames with names, source and locals.
struct Named<'a> {
    stacks: &'a [ThreadStack],
    /// What tasks await, by the address of their outermost frame.
    awaited: HashMap<u64, Vec<Frame>>,
}

impl<'a> Named<'a> {
    fn new<M: Memory + ?Sized>(
        reading: &Reading<'_, M>,
        codes: &Codes,
        found: &[FoundTask],
        stacks: &'a [ThreadStack],
    ) -> Self {
        let of_task = |found: &FoundTask| -> Vec<RawFrame> {
            let links = found.raw.awaits.links.iter().rev();
            links.map(|link| link.frame).collect()
        };
        let frames: Vec<Vec<RawFrame>> = found.iter().map(of_task).collect();
        let mut locals = reading
            .locals(&frames.concat(), &Innermost::default())
            .into_iter();
        let awaited = frames.iter().filter_map(|frames| {
            let root = frames.last()?.address;
            Some((root, snapshot::name_all(codes, frames, &mut locals)))
        });
        Self {
            awaited: awaited.collect(),
            stacks,
        }
    }

    /// The thread that runs a coroutine, given the address of its frame, and the frames from there inward.
    fn on_stack(&self, root: u64) -> Option<(&'a ThreadStack, &'a [Frame])> {
        self.stacks.iter().find_map(|stack| {
            let is_root = |frame: &Frame| frame.address == root;
            let at = stack.frames.iter().position(is_root)?;
            Some((stack, &stack.frames[..=at]))
        })
    }
}

impl FoundTask {
    fn named(
        &self,
        named: &Named<'_>,
        idents: &HashMap<u64, u64>,
        wait: Option<Wait>,
    ) -> AsyncTask {
        let raw = &self.raw;
        let (root, end) = (raw.root(), raw.awaits.end);
        let is_running = end == AwaitChainEnd::Running;
        let running = root.filter(|_| is_running);
        let running = running.and_then(|root| named.on_stack(root));
        let of_loop = || {
            let ident = idents.get(&raw.event_loop)?;
            named.stacks.iter().find(|stack| stack.ident == *ident)
        };
        let thread = running.map(|(stack, _)| stack).or_else(of_loop);
        let awaited = || root.and_then(|root| named.awaited.get(&root).cloned());
        AsyncTask {
            id: raw.address,
            name: raw.name.clone(),
            coroutine: raw.function.as_str().into(),
            state: match wait {
                _ if is_running => TaskState::Running,
                Some(_) => TaskState::Waiting,
                None if raw.waiter != 0 => TaskState::Waiting,
                None => TaskState::Ready,
            },
            wait,
            awaited_by: Vec::new(),
            thread: thread.map(|stack| (stack.tid, stack.name.clone())),
            complete: match running {
                Some((stack, _)) => stack.missing != FrameGap::Inner,
                None => {
                    self.is_settled
                        && !is_running
                        && !matches!(end, AwaitChainEnd::Broken | AwaitChainEnd::TooDeep)
                }
            },
            frames: running.map_or_else(
                || awaited().unwrap_or_default(),
                |(_, frames)| frames.to_vec(),
            ),
        }
    }
}

/// Tells each task who waits for it.
fn connect(tasks: &mut [AsyncTask]) {
    let mut waiting: HashMap<u64, Vec<u64>> = HashMap::new();
    for task in tasks.iter() {
        for awaited in task.wait.iter().flat_map(|wait| &wait.tasks) {
            waiting.entry(*awaited).or_default().push(task.id);
        }
    }
    for task in tasks {
        task.awaited_by = waiting.remove(&task.id).unwrap_or_default();
    }
}

/// No task in a circle of these resumes. One that waits for any of several may.
fn find_circles(tasks: &[AsyncTask]) -> Vec<Vec<u64>> {
    let ids: Vec<u64> = tasks.iter().map(|task| task.id).collect();
    let needs = |task: &AsyncTask| {
        let wait = task
            .wait
            .as_ref()
            .filter(|wait| wait.kind != WaitKind::Any)?;
        let needs = wait.tasks.iter().chain(&wait.held_by).copied();
        Some((task.id, needs.collect()))
    };
    circles::find(&ids, &tasks.iter().filter_map(needs).collect())
}

/// So that `worker-9` comes before `worker-10`.
fn by_number(name: &str) -> (String, u128, String) {
    let text = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[text.len()..].parse().unwrap_or(0);
    (text.to_owned(), number, name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_by_their_numbers() {
        let mut names = ["worker-10", "worker-9", "Task-2", "main"];
        names.sort_by_cached_key(|name| by_number(name));
        assert_eq!(names, ["Task-2", "main", "worker-9", "worker-10"]);
    }
}
