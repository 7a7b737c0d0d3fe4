//! The reason why a task waits, from its future and the asyncio function that made the future.
//!
//! A future does not say what it stands for. But whoever awaits a lock is inside `Lock.acquire`, whose first variable is
//! the lock, and a future of `gather` has a list of what was gathered.

use std::path::Path;

use crate::asyncio::coroutines::{AwaitChainEnd, Link};
use crate::asyncio::registry::Classes;
use crate::asyncio::task::{self, RawTask};
use crate::python::code::Codes;
use crate::python::objects::{Gap, ReadResult, View};

/// Tasks that one waits for.
const MAX_CHILDREN: usize = 100_000;
/// `gather` of `gather` of …
const MAX_NESTING: usize = 16;

/// What a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitKind {
    Sleep,
    Lock,
    Event,
    Condition,
    Semaphore,
    Barrier,
    /// An item of a queue.
    QueueGet,
    /// Room in a queue.
    QueuePut,
    /// That all items of a queue are done.
    QueueJoin,
    Task,
    Gather,
    TaskGroup,
    /// `asyncio.wait`
    Any,
    Shield,
    /// `asyncio.to_thread` and other work of an executor.
    Thread,
    /// Data of a stream, or room for it.
    Stream,
    Socket,
    /// The end of a process.
    Process,
    /// Nobody says what it stands for.
    Future,
}

/// What a task waits for, as far as it can be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) kind: WaitKind,
    /// Addresses of what it waits for: tasks, perhaps done, or futures.
    pub(crate) tasks: Vec<u64>,
    /// The lock.
    pub(crate) lock: Option<u64>,
}

impl Waits {
    fn new(kind: WaitKind) -> Self {
        Self {
            kind,
            tasks: Vec::new(),
            lock: None,
        }
    }
}

/// `None` for a task that waits for nothing: it runs, or will at the next turn of its loop.
pub(crate) fn look(
    view: &View<'_>,
    classes: &Classes,
    codes: &Codes,
    raw: &RawTask,
) -> ReadResult<Option<Waits>> {
    if raw.waiter == 0
        || matches!(
            raw.awaits.end,
            AwaitChainEnd::Running | AwaitChainEnd::NotStarted
        )
    {
        return Ok(None);
    }
    if task::is_task(view, classes, raw.waiter)? {
        let tasks = vec![raw.waiter];
        return Ok(Some(Waits {
            tasks,
            ..Waits::new(WaitKind::Task)
        }));
    }
    if is_gathering(view, raw.waiter)? {
        let tasks = gathered(view, raw.waiter, MAX_NESTING)?;
        return Ok(Some(Waits {
            tasks,
            ..Waits::new(WaitKind::Gather)
        }));
    }
    let place = raw.awaits.links.last().and_then(|link| {
        let code = codes.get(link.frame.code)?;
        Some((link, kind_of(&code.file, &code.name)?))
    });
    let Some((link, maker)) = place else {
        return unnamed(view, raw).map(Some);
    };
    let waits = match maker {
        Maker::Is(kind) => Waits::new(kind),
        Maker::Acquire => {
            let own = variable(link)?;
            let kind = if is_called(view, own, "Semaphore")? {
                WaitKind::Semaphore
            } else {
                WaitKind::Lock
            };
            let lock = (kind == WaitKind::Lock).then_some(own);
            Waits {
                lock,
                ..Waits::new(kind)
            }
        }
        Maker::Wait => Waits::new(waited(view, codes, &raw.awaits.links)?),
        Maker::AnyOf => Waits {
            tasks: view.members(variable(link)?, MAX_CHILDREN)?.first,
            ..Waits::new(WaitKind::Any)
        },
        Maker::Limited => {
            let limited = variable(link)?;
            let tasks = if is_gathering(view, limited)? {
                gathered(view, limited, MAX_NESTING)?
            } else {
                vec![limited]
            };
            Waits {
                tasks,
                ..Waits::new(WaitKind::Task)
            }
        }
        Maker::Group => {
            let tasks = view
                .attribute(variable(link)?, "_tasks")?
                .ok_or(Gap::Wrong)?;
            Waits {
                tasks: view.members(tasks, MAX_CHILDREN)?.first,
                ..Waits::new(WaitKind::TaskGroup)
            }
        }
    };
    Ok(Some(waits))
}

/// What a function of asyncio waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    Is(WaitKind),
    /// Of a lock or a semaphore.
    Acquire,
    /// Of an event or a condition.
    Wait,
    /// Its first variable is a set of futures.
    AnyOf,
    /// Its first variable is a future.
    Limited,
    /// Its first variable is a group of tasks.
    Group,
}

/// Before 3.11 code does not know its class, so the last part of the name must do.
fn kind_of(file: &Path, name: &str) -> Option<Maker> {
    let module = asyncio_module(file)?;
    let function = name.rsplit('.').next()?;
    Some(match (module, function) {
        ("tasks", "sleep") => Maker::Is(WaitKind::Sleep),
        ("tasks", "_wait") => Maker::AnyOf,
        ("tasks", "wait_for") => Maker::Limited,
        ("taskgroups", "__aexit__" | "_aexit") => Maker::Group,
        ("locks", "acquire") => Maker::Acquire,
        ("locks", "wait") => Maker::Wait,
        ("queues", "get") => Maker::Is(WaitKind::QueueGet),
        ("queues", "put") => Maker::Is(WaitKind::QueuePut),
        ("threads", "to_thread") => Maker::Is(WaitKind::Thread),
        ("base_events", "getaddrinfo" | "getnameinfo" | "shutdown_default_executor") => {
            Maker::Is(WaitKind::Thread)
        }
        ("streams", "_wait_for_data" | "_drain_helper") => Maker::Is(WaitKind::Stream),
        ("base_subprocess", "_wait") => Maker::Is(WaitKind::Process),
        (_, function) if function.starts_with("sock_") => Maker::Is(WaitKind::Socket),
        _ => return None,
    })
}

fn asyncio_module(file: &Path) -> Option<&str> {
    let folder = file.parent()?.file_name()?;
    (folder == "asyncio").then(|| file.file_stem()?.to_str())?
}

/// What the `wait` of an event or a condition is for: other parts of asyncio are made of these two.
fn waited(view: &View<'_>, codes: &Codes, links: &[Link]) -> ReadResult<WaitKind> {
    let last = links.last().ok_or(Gap::Wrong)?;
    let callers = links.iter().rev().skip(1).map_while(|link| {
        let code = codes.get(link.frame.code)?;
        asyncio_module(&code.file)?;
        code.name.rsplit('.').next()
    });
    for caller in callers {
        match caller {
            "join" => return Ok(WaitKind::QueueJoin),
            "_block" | "_wait" => return Ok(WaitKind::Barrier),
            _ => {}
        }
    }
    let is_condition = is_called(view, variable(last)?, "Condition")?;
    Ok(if is_condition {
        WaitKind::Condition
    } else {
        WaitKind::Event
    })
}

/// A future that some other code made. One of `shield` is told by who is to be called when it is done.
fn unnamed(view: &View<'_>, raw: &RawTask) -> ReadResult<Waits> {
    match shielded(view, raw.waiter) {
        Ok(mut tasks) => {
            // From 3.14 on it knows who waits, too.
            tasks.retain(|task| *task != raw.address);
            Ok(Waits {
                tasks,
                ..Waits::new(WaitKind::Shield)
            })
        }
        Err(Gap::Later) => Err(Gap::Later),
        Err(Gap::Wrong) => Ok(Waits::new(WaitKind::Future)),
    }
}

/// What the function that `shield` has called at the end refers to.
fn shielded(view: &View<'_>, future: u64) -> ReadResult<Vec<u64>> {
    let builtins = &view.interpreter.layout.builtins;
    let callback = view.word(future, builtins.header + 8)?;
    if view.class(callback)? != view.interpreter.types.function {
        return Err(Gap::Wrong);
    }
    let name = view.word(callback, builtins.function_qualified_name())?;
    if !view.text(name, 64)?.starts_with("shield.<locals>.") {
        return Err(Gap::Wrong);
    }
    let closure = view.word(callback, builtins.header + 56)?;
    let cells = view.items(closure, 8)?;
    cells
        .first
        .iter()
        .map(|cell| view.word(*cell, builtins.cell_content()))
        .collect()
}

fn is_gathering(view: &View<'_>, future: u64) -> ReadResult<bool> {
    is_called(view, future, "_GatheringFuture")
}

/// What `gather` was given.
fn gathered(view: &View<'_>, future: u64, nesting: usize) -> ReadResult<Vec<u64>> {
    let children = view.attribute(future, "_children")?.ok_or(Gap::Wrong)?;
    let mut tasks = Vec::new();
    for child in view.items(children, MAX_CHILDREN)?.first {
        if nesting > 0 && is_gathering(view, child)? {
            tasks.extend(gathered(view, child, nesting - 1)?);
        } else {
            tasks.push(child);
        }
        if tasks.len() >= MAX_CHILDREN {
            break;
        }
    }
    Ok(tasks)
}

/// Whether the class of an object, or one that it inherits from, has this name.
fn is_called(view: &View<'_>, object: u64, name: &str) -> ReadResult<bool> {
    const MAX_BASES: usize = 16;
    let mut class = match view.type_of(object) {
        Ok(class) => class,
        Err(Gap::Later) => return Err(Gap::Later),
        Err(Gap::Wrong) => return Ok(false),
    };
    for _ in 0..MAX_BASES {
        if *class.name == *name {
            return Ok(true);
        }
        if class.base == 0 {
            break;
        }
        class = view.type_at(class.base)?;
    }
    Ok(false)
}

/// The first variable of a function: `self`, or its first argument.
fn variable(link: &Link) -> ReadResult<u64> {
    link.slots
        .first()
        .copied()
        .filter(|slot| *slot != 0)
        .ok_or(Gap::Wrong)
}

/// Which of these locks the frames of a task are inside, by `async with`.
///
/// The way out of the block lies on the frame's stack: a method of the lock, or from 3.14 on a function and the lock.
/// It lies there already while the task waits to get in.
pub(crate) fn held(
    view: &View<'_>,
    codes: &Codes,
    locks: &[u64],
    links: &[Link],
) -> ReadResult<Vec<u64>> {
    let (mut held, mut later) = (Vec::new(), false);
    for (index, link) in links.iter().enumerate() {
        let Ok(mut inside) = exits(view, locks, link) else {
            later = true;
            continue;
        };
        let entering = links.get(index + 1).filter(|next| {
            let code = codes.get(next.frame.code);
            code.is_some_and(|code| code.name.ends_with("__aenter__"))
        });
        let entering = entering.and_then(|next| next.slots.first());
        if let Some(index) = inside.iter().rposition(|lock| Some(lock) == entering) {
            inside.remove(index);
        }
        held.extend(inside);
    }
    if later { Err(Gap::Later) } else { Ok(held) }
}

/// Locks whose way out lies on the stack of a frame.
fn exits(view: &View<'_>, locks: &[u64], link: &Link) -> ReadResult<Vec<u64>> {
    let (mut locked, mut later, mut before) = (Vec::new(), false, 0);
    let types = &view.interpreter.types;
    let builtins = &view.interpreter.layout.builtins;
    for slot in &link.slots {
        let way_out = match view.class(*slot) {
            Ok(class) if class == types.method => {
                let function = view.word(*slot, builtins.method_function());
                let own = view.word(*slot, builtins.method_function() + 8);
                function.and_then(|function| Ok((function, own?)))
            }
            Err(Gap::Later) => Err(Gap::Later),
            _ => Ok((before, *slot)),
        };
        before = *slot;
        let lock = way_out.and_then(|(function, lock)| {
            let is_exit = locks.binary_search(&lock).is_ok() && is_exit(view, function)?;
            Ok(is_exit.then_some(lock))
        });
        match lock {
            Ok(lock) => locked.extend(lock),
            Err(Gap::Later) => later = true,
            Err(Gap::Wrong) => {}
        }
    }
    if later { Err(Gap::Later) } else { Ok(locked) }
}

fn is_exit(view: &View<'_>, function: u64) -> ReadResult<bool> {
    if view.class(function)? != view.interpreter.types.function {
        return Ok(false);
    }
    let at = view.interpreter.layout.builtins.function_qualified_name();
    Ok(view
        .text(view.word(function, at)?, 256)?
        .ends_with(".__aexit__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_asyncio_tell_what_is_waited_for() {
        let check = |file: &str, name: &str, maker| {
            assert_eq!(kind_of(Path::new(file), name), maker, "{file} {name}");
        };
        let sleep = Some(Maker::Is(WaitKind::Sleep));
        check("/usr/lib/python3.10/asyncio/tasks.py", "sleep", sleep);
        check("asyncio/locks.py", "Lock.acquire", Some(Maker::Acquire));
        check(
            "asyncio/selector_events.py",
            "BaseSelectorEventLoop.sock_recv",
            Some(Maker::Is(WaitKind::Socket)),
        );
        check("/home/me/tasks.py", "sleep", None);
        check("<string>", "sleep", None);
        check("asyncio/tasks.py", "gather", None);
    }
}
