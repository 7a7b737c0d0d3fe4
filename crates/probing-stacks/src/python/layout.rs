//! Where the fields are that lead from `_PyRuntime` to the frames, for each version of Python.
//!
//! From 3.13 on the target says it itself (`published`); before, they are known for each minor version, one file each.
//! They do not differ between `x86_64` and aarch64: both have 8-byte pointers and the same alignment.

mod builtins;
mod published;
mod v3_10;
mod v3_11;
mod v3_12;

use crate::memory::Memory;

pub(crate) use self::builtins::{Builtins, Class};

/// Offsets in bytes unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) version: (u8, u8),
    /// Without a GIL. Each thread may then have a copy of the instructions of its own.
    pub(crate) free_threaded: bool,
    /// In `_PyRuntime`: the first interpreter.
    pub(crate) interpreters: u64,
    pub(crate) interpreter: Interpreter,
    pub(crate) gil: Gil,
    pub(crate) thread: Thread,
    pub(crate) frame: Frame,
    pub(crate) coroutine: Coroutine,
    pub(crate) code: Code,
    pub(crate) object: Object,
    pub(crate) builtins: Builtins,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interpreter {
    pub(crate) id: u64,
    pub(crate) next: u64,
    pub(crate) threads: u64,
    /// `sys.modules`
    pub(crate) modules: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gil {
    pub(crate) place: GilOffset,
    pub(crate) holder: usize,
    pub(crate) locked: usize,
}

/// Where the lock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GilOffset {
    /// One for all, at this offset in `_PyRuntime`.
    Runtime(u64),
    /// An interpreter points to its own or to the one it shares.
    Pointer(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) next: usize,
    pub(crate) interpreter: usize,
    /// `pthread_self()`
    pub(crate) ident: usize,
    /// The kernel's id, in the target's pid namespace. Not kept before 3.11.
    pub(crate) native_id: Option<usize>,
    pub(crate) frame: CurrentFrame,
    /// The newest piece of the stack that frames live on. Before 3.11 frames are objects of their own.
    pub(crate) chunk: Option<usize>,
    /// The list of runs of the interpreter on the native stack, before 3.12, when frames began to lead there.
    pub(crate) runs: Option<Runs>,
}

/// Where the newest run is, and in it the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Runs {
    pub(crate) newest: u64,
    pub(crate) previous: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CurrentFrame {
    Direct(usize),
    /// The thread points to a structure on the C stack that points to the frame.
    Through {
        pointer: usize,
        inside: u64,
    },
}

impl Thread {
    /// Where the address of the newest run of the interpreter stands, which is on the native stack of the thread that runs
    /// it; not from 3.13 on.
    pub(crate) fn newest_run(&self) -> Option<u64> {
        match (self.runs, self.frame) {
            (Some(runs), _) => Some(runs.newest),
            (None, CurrentFrame::Through { pointer, .. }) => Some(pointer as u64),
            (None, CurrentFrame::Direct(_)) => None,
        }
    }

    /// How many bytes hold the fields.
    pub(crate) fn size(&self) -> usize {
        let frame = match self.frame {
            CurrentFrame::Direct(at) | CurrentFrame::Through { pointer: at, .. } => at,
        };
        let fields = [self.next, self.interpreter, self.ident, frame];
        let optional = [self.native_id, self.chunk].into_iter().flatten();
        fields.into_iter().chain(optional).max().unwrap_or(0) + 8
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) previous: usize,
    pub(crate) code: usize,
    /// The first local variable.
    pub(crate) locals: usize,
    /// Dictionaries of a frame that is no function's: then the mapping of its own names.
    pub(crate) globals: usize,
    pub(crate) mapping: usize,
    pub(crate) instruction: Instruction,
    /// One byte that says who owns the frame.
    pub(crate) owner: Option<usize>,
    /// From this owner on it is not a frame of Python but marks where C entered the interpreter.
    pub(crate) first_shim_owner: u8,
    /// One byte that says whether C entered the interpreter for this frame.
    pub(crate) is_entry: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Number of the last instruction, 4 bytes.
    Index(usize),
    /// Address in the code object.
    Pointer(usize),
}

impl Frame {
    /// How many bytes hold the fields.
    pub(crate) fn size(&self) -> usize {
        let instruction = match self.instruction {
            Instruction::Index(at) | Instruction::Pointer(at) => at,
        };
        let optional = [self.owner, self.is_entry].into_iter().flatten();
        let fields = [self.previous, self.code, instruction].into_iter();
        fields.chain(optional).max().unwrap_or(0) + 8
    }
}

/// Coroutines, generators and asynchronous generators begin alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Coroutine {
    pub(crate) frame: FrameOffset,
    /// One byte that says whether it runs, waits or has ended: in the object, before 3.11 in its frame.
    pub(crate) state: usize,
    pub(crate) stack: StackTop,
    /// The qualified name of its function.
    pub(crate) name: usize,
}

/// Where the frame of a coroutine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameOffset {
    Inside(usize),
    Pointer(usize),
}

/// How a frame says how far its variables and temporary values reach. Only a frame that waits says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StackTop {
    /// Their number, 4 bytes.
    Count(usize),
    /// Address behind the last.
    Pointer(usize),
    /// Address of the first temporary value, and how many there are, 4 bytes.
    Depth { base: usize, count: usize },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) file: usize,
    /// The qualified name from 3.11 on.
    pub(crate) name: usize,
    pub(crate) lines: usize,
    pub(crate) first_line: usize,
    /// The instructions, inside the object from 3.11 on, where its size is their number.
    pub(crate) instructions: Option<usize>,
    pub(crate) flags: usize,
    pub(crate) variables: Variables,
}

/// Where the names of local variables are, in the order of their values in a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Variables {
    /// Three tuples: of locals, of cells, of free variables.
    Three([usize; 3]),
    /// One tuple, and bytes that say what each is.
    One { names: usize, kinds: usize },
}

impl Variables {
    fn last(&self) -> usize {
        match self {
            Self::Three(fields) => fields.iter().copied().max().unwrap_or(0),
            Self::One { names, kinds } => *names.max(kinds),
        }
    }
}

impl Code {
    /// How many bytes hold the fields.
    pub(crate) fn size(&self) -> usize {
        let fields = [
            self.file,
            self.name,
            self.lines,
            self.first_line,
            self.flags,
        ];
        let fields = fields.into_iter().chain([self.variables.last()]);
        fields.max().unwrap_or(0) + 8
    }
}

/// Objects, `str` and `bytes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) kind: usize,
    /// `ob_size`, also the length of a `str`.
    pub(crate) size: usize,
    pub(crate) text_state: usize,
    /// Bits of the state before those that say how characters are stored.
    pub(crate) text_state_shift: u32,
    pub(crate) ascii_text: usize,
    pub(crate) other_text: usize,
    /// Wide characters and their number, for text that has no other (until 3.11).
    pub(crate) wide: Option<(usize, usize)>,
    pub(crate) bytes: usize,
}

/// Of versions that publish nothing; a frame lies in its coroutine from 3.11 on.
const fn coroutine(frame: usize) -> Coroutine {
    Coroutine {
        frame: FrameOffset::Inside(frame),
        state: frame - 5,
        stack: StackTop::Count(64),
        name: frame - 40,
    }
}

/// Of versions that publish nothing. 3.12 dropped a pointer from `str`.
const fn object(version: u8) -> Object {
    let shorter = if version >= 12 { 8 } else { 0 };
    Object {
        kind: 8,
        size: 16,
        text_state: 32,
        text_state_shift: 2,
        ascii_text: 48 - shorter,
        other_text: 72 - 2 * shorter,
        wide: if version >= 12 { None } else { Some((40, 64)) },
        bytes: 32,
    }
}

impl Layout {
    /// `None`: this version is not known, or the target does not publish what it should.
    pub(crate) fn of(
        version: (u8, u8),
        memory: &(impl Memory + ?Sized),
        runtime: u64,
    ) -> Option<Self> {
        match version {
            (3, 10) => Some(v3_10::LAYOUT),
            (3, 11) => Some(v3_11::LAYOUT),
            (3, 12) => Some(v3_12::LAYOUT),
            (3, 13 | 14) => published::read(version, memory, runtime),
            _ => None,
        }
    }
}
