//! From a coroutine to what it awaits, and what that awaits.
//!
//! A coroutine that waits has a frame whose topmost temporary value is what it awaits: another coroutine, a generator,
//! or something that stands between it and a future.

use crate::memory::{u32_at, u64_at};
use crate::python::frames::{self, RawFrame};
use crate::python::layout::{FrameOffset, Layout, StackTop};
use crate::python::objects::{Gap, ReadResult, TAGS, Type, View};

/// Coroutines and what stands between them, of one task.
const MAX_STEPS: usize = 5_000;
/// Variables and temporary values of one frame. More has only code that was made by a machine: then the topmost is read.
const MAX_SLOTS: u64 = 512;
/// A frame whose fields take more says nonsense.
const MAX_HEAD: usize = 1024;
/// `co_code` of a code object of 3.10.
const CODE_3_10: usize = 48;
/// Instructions: of 3.10; of 3.11 and 3.12, as compiled, made faster, or watched by a tool.
const YIELD_FROM: u8 = 72;
const RESUME: u8 = 151;
const RESUME_QUICK: u8 = 150;
const RESUME_WATCHED: u8 = 240;

/// One frame of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) frame: RawFrame,
    /// Variables and temporary values, the topmost last. Only of a frame that waits.
    pub(crate) slots: Vec<u64>,
}

/// A coroutine, what it awaits, what that awaits, and so on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AwaitChain {
    /// Outermost first.
    pub(crate) links: Vec<Link>,
    pub(crate) end: AwaitChainEnd,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum AwaitChainEnd {
    /// Something without a frame of Python: a future, or an awaitable that is written in C.
    Object(u64),
    /// A `yield`: it gave the task what to wait for.
    Yield,
    /// The last frame runs now.
    Running,
    NotStarted,
    Ended,
    /// Not what was expected: it moved on meanwhile, or the memory is damaged.
    #[default]
    Broken,
    TooDeep,
}

/// What an object is on the way from a task to what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Has a frame, and waits only in an `await`.
    Coroutine,
    /// Has a frame, and may wait in a `yield`.
    Generator,
    /// Stands between a coroutine and what it awaits, to which its first field points.
    Wrapper,
    Other,
}

impl Role {
    /// A class of the program that has the name of a built-in one is told from it by how it was made.
    fn of(class: &Type) -> Self {
        match &*class.name {
            // Made while the program runs from 3.12 on, but with one field and no dictionary.
            "FutureIter" if !class.is_heap() || class.basic_size <= 40 => Self::Wrapper,
            _ if class.is_heap() => Self::Other,
            "coroutine" => Self::Coroutine,
            "generator" | "async_generator" => Self::Generator,
            "coroutine_wrapper"
            | "anext_awaitable"
            | "async_generator_asend"
            | "async_generator_athrow" => Self::Wrapper,
            _ => Self::Other,
        }
    }
}

/// Where a coroutine is.
enum Progress {
    NotStarted,
    Waiting,
    Yielded,
    Running,
    Ended,
}

impl Progress {
    /// From 3.13 on there is a state of its own for waiting in an `await`.
    fn of(layout: &Layout, state: i8) -> Self {
        match (layout.version.1 >= 13, state) {
            (_, 0) => Self::Running,
            (_, -1) => Self::Waiting,
            (true, -2) => Self::Yielded,
            (true, -3) | (false, -2) => Self::NotStarted,
            _ => Self::Ended,
        }
    }
}

/// Follows a coroutine to the end of what it awaits.
pub(crate) fn follow(view: &View<'_>, coroutine: u64) -> ReadResult<AwaitChain> {
    let (mut links, mut next) = (Vec::new(), coroutine);
    // An object seen before, renewed at steps 1, 2, 4, 8 …: to come by it again is to go in circles.
    let mut seen = 0;
    for step in 1..=MAX_STEPS {
        if next == seen {
            return Ok(AwaitChain {
                links,
                end: AwaitChainEnd::Broken,
            });
        }
        if step.is_power_of_two() {
            seen = next;
        }
        let role = match view.type_of(next) {
            Ok(class) => Role::of(&class),
            Err(Gap::Later) => return Err(Gap::Later),
            Err(Gap::Wrong) => {
                return Ok(AwaitChain {
                    links,
                    end: AwaitChainEnd::Broken,
                });
            }
        };
        let end = match role {
            Role::Other => AwaitChainEnd::Object(next),
            Role::Wrapper => {
                next = view.word(next, view.interpreter.layout.builtins.header)?;
                continue;
            }
            Role::Coroutine | Role::Generator => match frame_of(view, next, role) {
                Ok(Step { link, then }) => {
                    links.extend(link);
                    match then {
                        NextAwait::Awaits(object) => {
                            next = object;
                            continue;
                        }
                        NextAwait::Ends(end) => end,
                    }
                }
                Err(Gap::Later) => return Err(Gap::Later),
                Err(Gap::Wrong) => AwaitChainEnd::Broken,
            },
        };
        return Ok(AwaitChain { links, end });
    }
    Ok(AwaitChain {
        links,
        end: AwaitChainEnd::TooDeep,
    })
}

struct Step {
    link: Option<Link>,
    then: NextAwait,
}

enum NextAwait {
    Awaits(u64),
    Ends(AwaitChainEnd),
}

/// The frame of a coroutine, and what it awaits.
fn frame_of(view: &View<'_>, object: u64, role: Role) -> ReadResult<Step> {
    let layout = &view.interpreter.layout;
    let ended = |link, end| {
        let then = NextAwait::Ends(end);
        Ok(Step { link, then })
    };
    let address = match layout.coroutine.frame {
        FrameOffset::Inside(at) => object.checked_add(at as u64).ok_or(Gap::Wrong)?,
        FrameOffset::Pointer(at) => view.word(object, at)?,
    };
    // In 3.10 a coroutine that has ended has no frame.
    if address == 0 {
        return ended(None, AwaitChainEnd::Ended);
    }
    let bytes = view.bytes(address, layout.frame.locals.min(MAX_HEAD))?;
    let state = match layout.coroutine.frame {
        FrameOffset::Inside(_) => {
            let at = object.checked_add(layout.coroutine.state as u64);
            view.bytes(at.ok_or(Gap::Wrong)?, 1)?[0]
        }
        FrameOffset::Pointer(_) => *bytes.get(layout.coroutine.state).ok_or(Gap::Wrong)?,
    };
    let progress = Progress::of(layout, state.cast_signed());
    if let Progress::Ended = progress {
        return ended(None, AwaitChainEnd::Ended);
    }
    let parsed = frames::parse(layout, address, &bytes);
    let Some((_, frames::FrameEntry::Frame(frame))) = parsed else {
        return ended(None, AwaitChainEnd::Broken);
    };
    let bare = Some(Link {
        frame,
        slots: Vec::new(),
    });
    match progress {
        Progress::Running => return ended(bare, AwaitChainEnd::Running),
        Progress::NotStarted => return ended(bare, AwaitChainEnd::NotStarted),
        Progress::Waiting | Progress::Yielded | Progress::Ended => {}
    }
    let Some((first, count)) = slots(layout, address, &bytes) else {
        return ended(bare, AwaitChainEnd::Broken);
    };
    let whole = count <= MAX_SLOTS;
    let from = if whole {
        first
    } else {
        first + (count - 1) * 8
    };
    let mut slots = view.words(from, if whole { count as usize } else { 1 })?;
    for slot in &mut slots {
        *slot &= !TAGS;
    }
    let top = slots.last().copied();
    if !whole {
        slots.clear();
    }
    let link = Some(Link { frame, slots });
    let in_yield = match progress {
        Progress::Yielded => true,
        _ => role == Role::Generator && waits_in_yield(view, &frame)?,
    };
    match top {
        Some(object) if !in_yield => Ok(Step {
            link,
            then: NextAwait::Awaits(object),
        }),
        _ => ended(link, AwaitChainEnd::Yield),
    }
}

/// Where the variables and temporary values of a frame that waits begin, and how many there are.
fn slots(layout: &Layout, frame: u64, bytes: &[u8]) -> Option<(u64, u64)> {
    let first = frame.checked_add(layout.frame.locals as u64)?;
    let count = match layout.coroutine.stack {
        StackTop::Count(at) => u64::from(u32_at(bytes, at)?),
        StackTop::Pointer(at) => u64_at(bytes, at)?.checked_sub(first)? / 8,
        StackTop::Depth { base, count } => {
            let before = u64_at(bytes, base)?.checked_sub(first)? / 8;
            before + u64::from(u32_at(bytes, count)?)
        }
    };
    first.checked_add(count.checked_mul(8)?)?;
    (count > 0).then_some((first, count))
}

/// Whether a generator waits in a `yield`, in versions whose state does not tell that from an `await`.
fn waits_in_yield(view: &View<'_>, frame: &RawFrame) -> ReadResult<bool> {
    let layout = &view.interpreter.layout;
    let minor = layout.version.1;
    if minor >= 13 {
        return Ok(false);
    }
    let start = if let Some(at) = layout.code.instructions {
        frame.code.checked_add(at as u64)
    } else {
        let bytes = view.word(frame.code, CODE_3_10)?;
        bytes.checked_add(layout.object.bytes as u64)
    };
    let next = start.and_then(|start| start.checked_add_signed(frame.offset)?.checked_add(2));
    let instruction = view.bytes(next.ok_or(Gap::Wrong)?, 2)?;
    let awaits = match (minor, instruction[0]) {
        (10, code) => code == YIELD_FROM,
        // The lowest bits of the argument say why it will go on.
        (_, RESUME | RESUME_QUICK | RESUME_WATCHED) => instruction[1] & 3 >= 2,
        _ => false,
    };
    Ok(!awaits)
}
