//! The memory that an attach maps into the target: its layout, and the words for communication.
//!
//! ```text
//! start      one page of code, r-x
//! context    the borrowed thread's registers, then the words of `at`, rw- from here on
//!            room for its vector registers
//!            text that comes back when the source raised
//!            the source
//!            pending call only: thread-local storage and dtv of the helper, its stack
//!            the stub's stack
//! ```
//! No page is ever writable and executable, so processes that forbid that (MDWE) can be entered too.

use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::injection::memory::Memory;

pub(crate) const PAGE: u64 = crate::arch::PAGE;
/// Room for the vector registers; today's widest machine (AMX) needs 11 KB.
pub(crate) const VECTOR_ROOM: usize = 0x4000;
/// How long the new thread sleeps between two looks at a word of the block.
pub(crate) const NAP_NANOS: u64 = 200_000;
/// How often it looks for our verdict, without a sign that we live, before it leaves the block where it is: for 50 ms.
/// Another attach takes the block back then.
pub(crate) const LOOKS: u32 = 250;
/// How often it looks whether the borrowed thread is gone, before it goes on beside it: for 4 ms.
pub(crate) const COURTESIES: u32 = 20;
/// The longest text that comes back.
pub(crate) const TEXT_ROOM: u32 = 0x1000;

/// Offsets from the start of the context.
pub(crate) mod at {
    pub(crate) const REGISTERS: u32 = 0;
    /// The borrowed thread's signal mask.
    pub(crate) const MASK: u32 = 0x100;
    /// Where the stub asks which signals wait.
    pub(crate) const WAITING: u32 = 0x108;
    /// Result register and program counter for the case that a signal waits: its system call is interrupted.
    pub(crate) const INTERRUPTED_RESULT: u32 = 0x110;
    pub(crate) const INTERRUPTED_PC: u32 = 0x118;
    /// The borrowed thread's own stack, below its red zone.
    pub(crate) const OWN_STACK: u32 = 0x120;
    /// What starting the thread (or the helper) gave back.
    pub(crate) const STARTED: u32 = 0x128;
    /// 1 once the borrowed thread has its signal mask back and is a few instructions from home.
    pub(crate) const LEFT: u32 = 0x130;
    pub(crate) const STATE: u32 = 0x138;
    /// We write 1: do not begin.
    pub(crate) const CANCEL: u32 = 0x140;
    /// What adding the pending call gave back, plus 2 (0: not yet called).
    pub(crate) const QUEUED: u32 = 0x148;
    /// The helper's thread id; the kernel clears it when the helper is gone.
    pub(crate) const HELPER: u32 = 0x150;
    /// The thread in which the pending call ran.
    pub(crate) const CALLER: u32 = 0x158;
    /// We write 1: unmap the block when you are done; 2: leave it.
    pub(crate) const VERDICT: u32 = 0x160;
    pub(crate) const TEXT_LEN: u32 = 0x168;
    /// All signals, as a mask.
    pub(crate) const EVERY_SIGNAL: u32 = 0x170;
    pub(crate) const OLD_MASK: u32 = 0x178;
    /// A `timespec`: [`NAP_NANOS`](super::NAP_NANOS).
    pub(crate) const NAP: u32 = 0x180;
    pub(crate) const FLOAT_CONTROL: u32 = 0x190;
    /// Name of the variable in which the wrapper leaves its result.
    pub(crate) const NAME: u32 = 0x198;
    /// The thread that was borrowed.
    pub(crate) const BORROWED: u32 = 0x1b8;
    /// A `timespec` of the monotonic clock: when it left. We may be kept from looking for longer than that.
    pub(crate) const LEFT_AT: u32 = 0x1c0;
    /// The interpreter that the call was queued for.
    pub(crate) const INTERPRETER: u32 = 0x1d0;
    /// The new thread, as it calls itself.
    pub(crate) const THREAD: u32 = 0x1d8;
    /// We write another number now and then: we live.
    pub(crate) const BEAT: u32 = 0x1e0;
    /// Which [`Way`](super::Way) it was made for: its number and [`MARK`](super::MARK).
    pub(crate) const WAY: u32 = 0x1e8;
    pub(crate) const END: u32 = 0x1f0;
    pub(crate) const VECTORS: u32 = 0x1000;
    pub(crate) const TEXT: u32 = VECTORS + super::VECTOR_ROOM as u32;
    pub(crate) const SOURCE: u32 = TEXT + super::TEXT_ROOM;
}

/// In a block that was filled.
pub(crate) const MARK: u64 = 0x7072_6f62_696e_6700;

/// How far the source has come: the value at [`at::STATE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Waiting = 0,
    Running = 1,
    Done = 2,
    Cancelled = 3,
    /// The wrapper itself could not run: no memory.
    Failed = 4,
    NotInitialized = 5,
}

/// Which code the borrowed thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StubKind {
    /// Starts a Python thread, which runs the source.
    Thread,
    /// Clones a helper that queues a pending call, which starts that thread from main.
    Pending,
    /// Runs the source itself.
    Hijack,
}

impl StubKind {
    const ALL: [Self; 3] = [Self::Thread, Self::Pending, Self::Hijack];

    /// The word at [`at::WAY`].
    pub(crate) fn word(self) -> u64 {
        MARK | self as u64
    }

    pub(crate) fn of_word(word: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.word() == word)
    }
}

/// Where the parts are, as distances from the start of the block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) way: StubKind,
    /// The helper's thread pointer; its storage lies on both sides.
    pub(crate) thread_pointer: u64,
    pub(crate) dtv: u64,
    /// What every entry of the dtv points to.
    pub(crate) zeroes: u64,
    pub(crate) helper_stack: u64,
    pub(crate) stub_stack: u64,
    pub(crate) total: u64,
}

impl Layout {
    /// `dtv_len`: bytes of the helper's dtv.
    pub(crate) fn new(way: StubKind, source_len: usize, dtv_len: usize) -> Self {
        const STORAGE: u64 = 0x10000;
        const ZEROES: u64 = 0x40000;
        const STACK: u64 = 0x20000;
        let pages = |len: usize| (len as u64).next_multiple_of(PAGE);
        let mut end = PAGE + u64::from(at::SOURCE) + pages(source_len + 1);
        let mut take = |len: u64| {
            end += len;
            end
        };
        let (mut thread_pointer, mut dtv, mut zeroes, mut helper_stack) = (0, 0, 0, 0);
        if way == StubKind::Pending {
            thread_pointer = take(STORAGE);
            dtv = take(STORAGE);
            zeroes = take(pages(dtv_len));
            // The helper's stack is not the stub's: both run at once.
            helper_stack = take(ZEROES + STACK) - 64;
        }
        let total = take(STACK);
        Self {
            way,
            thread_pointer,
            dtv,
            zeroes,
            helper_stack,
            stub_stack: total - 64,
            total,
        }
    }
}

/// A block in the target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) start: u64,
    pub(crate) layout: Layout,
}

impl Block {
    pub(crate) fn code(&self) -> Range<u64> {
        self.start..self.context()
    }

    /// Whether one of these words is an address in it.
    pub(crate) fn is_pointed_to(&self, bytes: &[u8]) -> bool {
        let all = self.start..self.start + self.layout.total;
        words(bytes).any(|word| all.contains(&word))
    }

    pub(crate) fn context(&self) -> u64 {
        self.start + PAGE
    }

    pub(crate) fn word(&self, at: u32) -> u64 {
        self.context() + u64::from(at)
    }

    pub(crate) fn status(&self, memory: &Memory) -> io::Result<Status> {
        let mut bytes = [0; (at::END - at::MASK) as usize];
        memory.read(self.word(at::MASK), &mut bytes)?;
        Ok(Status::read(&bytes))
    }

    /// The text that the source's failure left.
    pub(crate) fn text(&self, memory: &Memory, len: u64) -> io::Result<String> {
        let len = len.min(u64::from(TEXT_ROOM)) as usize;
        let bytes = memory.read_vec(self.word(at::TEXT), len)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Bytes of the target as what they are most likely to be.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes);
    bytes
        .chunks_exact(8)
        .filter_map(move |bytes| word(bytes).ok())
}

/// The words that the target writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    pub(crate) state: State,
    pub(crate) left: bool,
    /// On the monotonic clock.
    pub(crate) left_at: Duration,
    pub(crate) started: i64,
    /// Whether the pending call was taken; `None`: not asked yet.
    pub(crate) queued: Option<bool>,
    pub(crate) helper_alive: bool,
    pub(crate) caller: i32,
    pub(crate) text_len: u64,
    pub(crate) interpreter: u64,
    /// The borrowed thread and the new one, as they call themselves; the new one once it runs.
    pub(crate) borrowed: u32,
    pub(crate) thread: Option<u32>,
    /// Nothing in a block that was never filled.
    pub(crate) way: Option<StubKind>,
}

impl Status {
    fn read(bytes: &[u8]) -> Self {
        let word = |at: u32| {
            let start = (at - at::MASK) as usize;
            let word = bytes
                .get(start..start + 8)
                .and_then(|word| word.try_into().ok());
            u64::from_le_bytes(word.unwrap_or_default())
        };
        Self {
            state: match word(at::STATE) {
                0 => State::Waiting,
                1 => State::Running,
                2 => State::Done,
                3 => State::Cancelled,
                5 => State::NotInitialized,
                _ => State::Failed,
            },
            left: word(at::LEFT) != 0,
            left_at: Duration::from_secs(word(at::LEFT_AT))
                .saturating_add(Duration::from_nanos(word(at::LEFT_AT + 8))),
            started: word(at::STARTED) as i64,
            queued: match word(at::QUEUED) as u32 {
                0 => None,
                answer => Some(answer == 2),
            },
            helper_alive: word(at::HELPER) as u32 != 0,
            caller: word(at::CALLER) as i32,
            text_len: word(at::TEXT_LEN),
            interpreter: word(at::INTERPRETER),
            borrowed: word(at::BORROWED) as u32,
            thread: Some(word(at::THREAD) as u32).filter(|thread| *thread != 0),
            way: StubKind::of_word(word(at::WAY)),
        }
    }
}
