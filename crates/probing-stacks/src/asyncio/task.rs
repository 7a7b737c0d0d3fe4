//! One task as it stands in memory.
//!
//! Tasks in C have their fields at fixed places, which differ between versions but follow from the size of a future.
//! Tasks in Python (`asyncio.tasks._PyTask` and what derives from it) have attributes.

use crate::asyncio::coroutines::{self, AwaitChain, AwaitChainEnd};
use crate::asyncio::registry::Classes;
use crate::python::objects::{Gap, Integer, ReadResult, View};

const MAX_NAME: usize = 256;
const MAX_BASES: usize = 32;

/// A task that is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawTask {
    pub(crate) address: u64,
    pub(crate) name: String,
    /// The qualified name of the function that it runs.
    pub(crate) function: String,
    pub(crate) event_loop: u64,
    /// The future that it waits for; 0 for none.
    pub(crate) waiter: u64,
    pub(crate) awaits: AwaitChain,
}

impl RawTask {
    /// Whether two readings say the same. A task that runs goes on within its function meanwhile.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let running =
            |task: &Self| (task.awaits.end == AwaitChainEnd::Running).then(|| task.root());
        match (running(self), running(other)) {
            (Some(one), Some(other)) => one == other,
            _ => self == other,
        }
    }

    /// Address of its outermost frame.
    pub(crate) fn root(&self) -> Option<u64> {
        self.awaits.links.first().map(|link| link.frame.address)
    }
}

/// Whether an object is a task, and how it keeps what we need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Fields(Fields),
    Attributes,
}

/// Offsets in a task in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    /// 4 bytes; 0 for a task that is not done.
    state: usize,
    waiter: usize,
}

impl Fields {
    /// The coroutine and the name follow the future that a task waits for.
    fn coroutine(self) -> usize {
        self.waiter + 8
    }

    fn name(self) -> usize {
        self.waiter + 16
    }

    /// From how large futures and tasks are; `None` for a size that no release has.
    fn of(minor: u8, future: u64, task: u64) -> Option<Self> {
        let future = usize::try_from(future)
            .ok()
            .filter(|size| (64..1024).contains(size))?;
        // How far the state is before the end of a future, the waiter after it, and what follows.
        let (state, waiter, rest) = match minor {
            10 => (64, 0, 40),
            11 | 12 => (40, 0, 48),
            13 => (8, 8, 40),
            _ => (8, 8, 56),
        };
        (future as u64 + rest == task).then_some(Self {
            state: future - state,
            waiter: future + waiter,
        })
    }
}

/// A task that is not done; `None` for anything else.
pub(crate) fn look(
    view: &View<'_>,
    classes: &Classes,
    address: u64,
) -> ReadResult<Option<RawTask>> {
    let header = view.interpreter.layout.builtins.header;
    let (event_loop, waiter, coroutine, name) = match form(view, classes, address)? {
        None => return Ok(None),
        Some(Form::Fields(fields)) => {
            // The state is half a word; the other half is something else.
            if view.word(address, fields.state)? as u32 != 0 {
                return Ok(None);
            }
            let name = view.word(address, fields.name());
            let coroutine = view.word(address, fields.coroutine());
            let waiter = view.word(address, fields.waiter);
            (view.word(address, header)?, waiter?, coroutine?, name?)
        }
        Some(Form::Attributes) => {
            let attributes = view.attributes(address, 64)?;
            let find = |name: &str| {
                view.find(&attributes.first, name)
                    .map(Option::unwrap_or_default)
            };
            let (state, waiter) = (find("_state")?, find("_fut_waiter")?);
            if state != 0 && view.text(state, 16)? != "PENDING" {
                return Ok(None);
            }
            let none = view.interpreter.types.none;
            let waiter = if waiter == none { 0 } else { waiter };
            (find("_loop")?, waiter, find("_coro")?, find("_name")?)
        }
    };
    let awaits = coroutines::follow(view, coroutine);
    let name = self::name(view, name);
    let function = function(view, coroutine);
    let (awaits, name, function) = (awaits?, name?, function?);
    if awaits.end == AwaitChainEnd::Ended {
        return Ok(None);
    }
    Ok(Some(RawTask {
        address,
        name,
        function,
        event_loop,
        waiter,
        awaits,
    }))
}

/// Whether it is a task, done or not.
pub(crate) fn is_task(view: &View<'_>, classes: &Classes, address: u64) -> ReadResult<bool> {
    Ok(form(view, classes, address)?.is_some())
}

fn form(view: &View<'_>, classes: &Classes, address: u64) -> ReadResult<Option<Form>> {
    let mut class = match view.type_of(address) {
        Ok(class) => class,
        Err(Gap::Later) => return Err(Gap::Later),
        Err(Gap::Wrong) => return Ok(None),
    };
    for _ in 0..MAX_BASES {
        if class.address == classes.task {
            let future = view.type_at(classes.future)?;
            let minor = view.interpreter.layout.version.1;
            let fields = Fields::of(minor, future.basic_size, class.basic_size);
            return Ok(fields.map(Form::Fields));
        }
        if class.address == classes.plain_task {
            return Ok(Some(Form::Attributes));
        }
        if class.base == 0 {
            break;
        }
        class = view.type_at(class.base)?;
    }
    Ok(None)
}

/// The function of a coroutine. One that is not written in Python is known by its type.
fn function(view: &View<'_>, coroutine: u64) -> ReadResult<String> {
    let class = view.type_of(coroutine)?;
    let at = view.interpreter.layout.coroutine.name;
    let name = match &*class.name {
        "coroutine" | "generator" => view.text(view.word(coroutine, at)?, MAX_NAME),
        _ => Err(Gap::Wrong),
    };
    match name {
        Err(Gap::Wrong) => Ok(class.name.to_string()),
        name => name,
    }
}

/// Text; from 3.12 on a number, if nobody gave it a name and nobody asked for it yet.
fn name(view: &View<'_>, name: u64) -> ReadResult<String> {
    match view.text(name, MAX_NAME) {
        Err(Gap::Wrong) => match view.integer(name)? {
            Integer::Small(number) => Ok(format!("Task-{number}")),
            Integer::Written(_) | Integer::Bits(_) => Err(Gap::Wrong),
        },
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_from_the_sizes_of_the_types() {
        let check = |minor, future, task, state, waiter| {
            assert_eq!(
                Fields::of(minor, future, task),
                Some(Fields { state, waiter })
            );
        };
        check(10, 152, 192, 88, 152);
        check(11, 128, 176, 88, 128);
        check(12, 128, 176, 88, 128);
        check(13, 104, 144, 96, 112);
        check(14, 112, 168, 104, 120);
        assert_eq!(Fields::of(12, 128, 180), None);
        assert_eq!(Fields::of(12, u64::MAX, 48), None);
    }
}
