//! Finds all tasks of a process: where asyncio itself keeps them.
//!
//! Until 3.13 they are in sets of `asyncio.tasks`. From 3.14 on a thread has a list of its tasks, an interpreter one of
//! those whose thread has ended, and the sets hold only tasks that are not written in C. Where the lists begin is
//! published in a section of the file that holds `_asyncio`.

use std::collections::HashSet;

use probing_process::access::source::Source;
use probing_process::python::Library;

use crate::maps;
use crate::memory::{CopyOutcome, Memory, Pages, u64_at};
use crate::python::interpreter::Interpreter;
use crate::python::objects::{Gap, Objects, ReadResult, View};
use crate::python::thread_states::Thread;

/// Modules looked through for those of asyncio.
const MAX_MODULES: usize = 100_000;
/// Of a list, when tasks come and go while it is read.
const TRIES: usize = 5;
const LARGEST: u64 = 16 << 20;

/// Where 3.14 says that its lists of tasks are, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(crate) task: u64,
    pub(crate) interpreter: u64,
    pub(crate) thread: u64,
}

impl Lists {
    /// In the file of `_asyncio`, or of an interpreter that it is built into.
    pub(crate) fn find(source: &dyn Source) -> Option<Self> {
        let maps = maps::read_maps(source).ok()?;
        let mut files = Library::of_module(source, &maps, "_asyncio");
        let address = files.find_map(|file| file.section(".AsyncioDebug"))?;
        Self::parse(&source.read(address, 13 * 8)?)
    }

    fn parse(section: &[u8]) -> Option<Self> {
        let number = |index: usize| u64_at(section, index * 8).filter(|offset| *offset < LARGEST);
        Some(Self {
            task: number(6)?,
            interpreter: number(8)?,
            thread: number(12)?,
        })
    }
}

/// The classes that tell tasks from other objects. 0 for one that is not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Classes {
    /// In C, whose fields are at fixed places.
    pub(crate) task: u64,
    pub(crate) future: u64,
    /// In Python, with attributes.
    pub(crate) plain_task: u64,
}

/// What asyncio knows in one interpreter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Registry {
    pub(crate) classes: Classes,
    /// Addresses of what may be tasks.
    pub(crate) tasks: Vec<u64>,
    /// There are more than `tasks`.
    pub(crate) is_cut: bool,
}

/// The registries of all interpreters that have imported asyncio.
pub(crate) fn read_registries<M: Memory + ?Sized>(
    interpreter: &Interpreter,
    memory: &M,
    threads: &[Thread],
    lists: Option<Lists>,
    limit: usize,
) -> Vec<Registry> {
    let mut states: Vec<u64> = threads.iter().map(|thread| thread.owner).collect();
    states.sort_unstable();
    states.dedup();
    let mut objects = Objects::new(interpreter, memory);
    let found = objects.each(&states, |view, state| in_sets(view, *state, limit));
    let mut registries = Vec::new();
    for (state, registry) in states.iter().zip(found) {
        let Some(mut registry) = registry else {
            continue;
        };
        if let Some(lists) = lists {
            let heads = threads.iter().filter(|thread| thread.owner == *state);
            let heads = heads.map(|thread| thread.address.checked_add(lists.thread));
            let heads = heads.chain([state.checked_add(lists.interpreter)]);
            for head in heads.flatten() {
                let room = limit.saturating_sub(registry.tasks.len());
                let (tasks, is_cut) = listed(memory, head, lists.task, room);
                registry.tasks.extend(tasks);
                registry.is_cut |= is_cut;
            }
        }
        let mut seen = HashSet::new();
        registry.tasks.retain(|task| seen.insert(*task));
        registries.push(registry);
    }
    registries
}

/// What the modules of one interpreter say.
fn in_sets(view: &View<'_>, state: u64, limit: usize) -> ReadResult<Registry> {
    let at = usize::try_from(view.interpreter.layout.interpreter.modules);
    let modules = view.word(state, at.map_err(|_too_far| Gap::Wrong)?)?;
    let pairs = view.pairs(modules, MAX_MODULES)?;
    let module = |name: &str| match view.find(&pairs.first, name)? {
        Some(module) => view
            .word(module, view.interpreter.layout.builtins.header)
            .map(Some),
        None => Ok(None),
    };
    // Python would import it whole; a module that is being imported may lack some names.
    let Some(tasks) = module("asyncio.tasks")? else {
        return Err(Gap::Wrong);
    };
    let attribute =
        |dict: u64, name: &str| view.value_of(dict, name).map(Option::unwrap_or_default);
    let mut classes = Classes {
        plain_task: attribute(tasks, "_PyTask")?,
        ..Classes::default()
    };
    if let Some(in_c) = module("_asyncio")? {
        classes.task = attribute(in_c, "Task")?;
        classes.future = attribute(in_c, "Future")?;
    }
    let mut registered = Registry {
        classes,
        ..Registry::default()
    };
    for name in ["_all_tasks", "_scheduled_tasks"] {
        let weak_set = attribute(tasks, name)?;
        if weak_set != 0
            && let Some(data) = view.attribute(weak_set, "data")?
        {
            let references = view.members(data, limit)?;
            registered.is_cut |= references.count > references.first.len();
            registered.tasks.extend(referents(view, &references.first)?);
        }
    }
    let eager = attribute(tasks, "_eager_tasks")?;
    if eager != 0 {
        let eager = view.members(eager, limit)?;
        registered.is_cut |= eager.count > eager.first.len();
        registered.tasks.extend(eager.first);
    }
    Ok(registered)
}

/// What weak references refer to.
fn referents(view: &View<'_>, references: &[u64]) -> ReadResult<Vec<u64>> {
    let header = view.interpreter.layout.builtins.header;
    let looks: Vec<ReadResult<u64>> = references.iter().map(|at| view.word(*at, header)).collect();
    if looks.contains(&Err(Gap::Later)) {
        return Err(Gap::Later);
    }
    Ok(looks.into_iter().flatten().collect())
}

/// The tasks of a list that runs in a circle from its head, and whether there are more.
fn listed(
    memory: &(impl Memory + ?Sized),
    head: u64,
    offset: u64,
    limit: usize,
) -> (Vec<u64>, bool) {
    let mut best = Vec::new();
    for _ in 0..TRIES {
        let (tasks, end) = walk(memory, head, offset, limit);
        match end {
            Walked::Whole => return (tasks, false),
            Walked::Cut => return (tasks, true),
            Walked::Broken if tasks.len() > best.len() => best = tasks,
            Walked::Broken => {}
        }
    }
    (best, true)
}

enum Walked {
    Whole,
    Cut,
    /// A task that was in it is gone.
    Broken,
}

fn walk(
    memory: &(impl Memory + ?Sized),
    head: u64,
    offset: u64,
    limit: usize,
) -> (Vec<u64>, Walked) {
    let (mut pages, mut tasks, mut seen) = (Pages::default(), Vec::new(), HashSet::new());
    let mut node = head;
    loop {
        let mut next = [0; 8];
        if pages.copy(node, &mut next) == CopyOutcome::NotLoaded {
            pages.load(memory, &[(node, 8)]);
        }
        if pages.copy(node, &mut next) != CopyOutcome::Here {
            return (tasks, Walked::Broken);
        }
        node = u64::from_le_bytes(next);
        if node == head {
            return (tasks, Walked::Whole);
        }
        // A list that nobody has used yet.
        if node == 0 && tasks.is_empty() {
            return (tasks, Walked::Whole);
        }
        let task = node.checked_sub(offset).filter(|task| *task != 0);
        let Some(task) = task.filter(|task| seen.insert(*task)) else {
            return (tasks, Walked::Broken);
        };
        if tasks.len() >= limit {
            return (tasks, Walked::Cut);
        }
        tasks.push(task);
    }
}
