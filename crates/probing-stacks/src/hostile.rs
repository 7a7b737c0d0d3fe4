//! Tests of the reader on memory that no Python ever had: random, self-pointing, damaged, changing while it is read.

mod living;
mod tables;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use probing_proto::process::Pid;
use proptest::prelude::*;

use crate::asyncio::{self, Lists};
use crate::consistency::Reading;
use crate::memory::{Bounded, Memory, Range};
use crate::python::code::Codes;
use crate::python::interpreter::{Interpreter, Types};
use crate::python::layout::{CurrentFrame, GilOffset, Instruction, Layout};
use crate::python::thread_states;
use crate::snapshot::{self, MatchedThread};
use crate::{FrameGap, Gil, LocalLimits, ThreadStack};

const ARENA: u64 = 0x7000_0000;
const TYPES: Types = Types {
    code: ARENA,
    text: ARENA + 8,
    bytes: ARENA + 16,
    class: ARENA + 24,
    boolean: ARENA + 32,
    float: ARENA + 40,
    set: ARENA + 48,
    frozen_set: ARENA + 56,
    cell: ARENA + 64,
    function: ARENA + 72,
    c_function: ARENA + 80,
    method: ARENA + 88,
    module: ARENA + 96,
    complex: ARENA + 104,
    range: ARENA + 112,
    none: ARENA + 120,
    ellipsis: ARENA + 128,
    not_implemented: ARENA + 136,
};

const LISTS: Lists = Lists {
    task: 152,
    interpreter: 0x800,
    thread: 0x180,
};

/// A target in which everything is what it should not be.
#[derive(Debug)]
struct Hostile {
    seed: u64,
    /// Each word points into so many bytes; 0 for words of any value.
    size: u64,
    /// Words point to themselves.
    mirror: bool,
    /// One word in so many is the address of a type, a small number, nothing.
    oddity: u64,
    /// Each reading gives something else.
    moving: bool,
    readings: AtomicU64,
}

impl Hostile {
    fn word(&self, address: u64) -> u64 {
        let time = if self.moving {
            self.readings.load(Ordering::Relaxed)
        } else {
            0
        };
        let mut hash = (address / 8) ^ self.seed ^ (time << 40);
        for _ in 0..2 {
            hash = (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        hash ^= hash >> 29;
        match hash % self.oddity {
            0 => return TYPES.code,
            1 => return TYPES.text,
            2 => return TYPES.bytes,
            3 => return 0,
            4 => return hash >> 56,
            _ => {}
        }
        match self.size {
            _ if self.mirror => address,
            0 => hash,
            size => ARENA + (hash >> 8) % size / 16 * 16,
        }
    }
}

impl Memory for Hostile {
    fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>> {
        self.readings.fetch_add(1, Ordering::Relaxed);
        let bytes = |(address, len): &Range| {
            let end = address.checked_add(*len as u64)?;
            let words = (address / 8..end.div_ceil(8)).map(|word| self.word(word * 8));
            let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            let skip = (address % 8) as usize;
            bytes.get(skip..skip + len).map(<[u8]>::to_vec)
        };
        ranges.iter().map(bytes).collect()
    }
}

/// An interpreter of which there is nothing.
pub(crate) fn interpreter() -> Interpreter {
    Interpreter {
        runtime: 0,
        layout: layouts().swap_remove(0),
        types: TYPES,
    }
}

/// For memory that never ends.
const ENDLESS_READ_TIMEOUT: Duration = Duration::from_millis(5);
/// For memory that does, on a machine that has other things to do.
const SLOW_READ_TIMEOUT: Duration = Duration::from_mins(10);

/// Everything but the kernel's part. The bound is small because a hostile memory never ends.
fn read_all(
    memory: &impl Memory,
    layout: Layout,
    runtime: u64,
    patience: Duration,
) -> Vec<ThreadStack> {
    let interpreter = Interpreter {
        runtime,
        layout,
        types: TYPES,
    };
    let memory = Bounded::new(memory, 8 << 20);
    let Some(mut threads) = thread_states::read_threads(&interpreter, &memory) else {
        return Vec::new();
    };
    thread_states::find_native_ids(&memory, &mut threads, &HashSet::from([1, 2, 3]));
    let unknown = |thread| MatchedThread {
        thread,
        tid: None,
        name: None,
    };
    let reading = Reading {
        interpreter: &interpreter,
        memory: &memory,
        max_depth: 1000,
        pause: crate::Pause::Never,
        until: Instant::now() + patience,
        locals: Some(LocalLimits::default()),
    };
    let known: Vec<MatchedThread> = threads.into_iter().map(unknown).collect();
    let pid = Pid(std::process::id());
    let found = asyncio::read(&pid, &reading, &mut Codes::default(), &known, Some(LISTS));
    assert!(found.tasks.iter().all(|task| task.frames.len() <= 5_000));
    let (stacks, _, _) = snapshot::stacks(&pid, &reading, &mut Codes::default(), known);
    assert!(stacks.iter().all(|stack| stack.frames.len() <= 1000));
    stacks
}

/// The layouts of all versions.
fn layouts() -> Vec<Layout> {
    let known = [(3, 10), (3, 11), (3, 12)].map(|version| Layout::of(version, &NOTHING, 0));
    let published = tables::ALL.map(|(version, table)| published(version, &table));
    known.into_iter().chain(published).flatten().collect()
}

/// What a version makes of a table of offsets.
fn published(version: (u8, u8), table: &[u64]) -> Option<Layout> {
    let mut fake = Fake {
        bytes: vec![0; SIZE],
        restless: Vec::new(),
    };
    for (index, number) in table.iter().enumerate() {
        fake.put(RUNTIME + 8 * index as u64, *number);
    }
    Layout::of(version, &fake, RUNTIME)
}

static NOTHING: Hostile = Hostile {
    seed: 0,
    size: 0,
    mirror: false,
    oddity: 8,
    moving: false,
    readings: AtomicU64::new(0),
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_memory_is_survived(seed: u64, size in prop_oneof![Just(0u64), 64u64..100_000], oddity in 5u64..200, mirror: bool, moving: bool) {
        let readings = AtomicU64::new(0);
        let hostile = Hostile { seed, size, mirror, oddity, moving, readings };
        for layout in layouts() {
            read_all(&hostile, layout, ARENA, ENDLESS_READ_TIMEOUT);
        }
    }
}

#[test]
fn a_published_table_of_nonsense_is_refused() {
    assert_eq!(Layout::of((3, 14), &NOTHING, ARENA), None);
    assert_eq!(Layout::of((3, 9), &NOTHING, ARENA), None);
}

/// A small target that is in order.
#[derive(Debug, Clone)]
struct Fake {
    bytes: Vec<u8>,
    /// Bytes that change with each reading.
    restless: Vec<(usize, u8)>,
}

const RUNTIME: u64 = ARENA + 0x1000;
const INTERPRETER: u64 = ARENA + 0x14000;
const THREADS: u64 = ARENA + 0x3000;
const GIL: u64 = ARENA + 0x5000;
const CODES: u64 = ARENA + 0x6000;
const CHUNKS: u64 = ARENA + 0x8000;
const SIZE: usize = 0x18000;
const DEPTH: u64 = 50;

impl Fake {
    fn new(layout: &Layout) -> Self {
        let mut fake = Self {
            bytes: vec![0; SIZE],
            restless: Vec::new(),
        };
        fake.put(RUNTIME + layout.interpreters, INTERPRETER);
        fake.put(INTERPRETER + layout.interpreter.threads, THREADS);
        let gil = match layout.gil.place {
            GilOffset::Pointer(at) => {
                fake.put(INTERPRETER + at, GIL);
                GIL
            }
            GilOffset::Runtime(at) => RUNTIME + at,
        };
        fake.put(gil + layout.gil.holder as u64, THREADS);
        fake.put(gil + layout.gil.locked as u64, 1);
        fake.put_code(layout);
        for index in 0..3 {
            fake.put_thread(layout, index);
        }
        fake
    }

    fn put(&mut self, address: u64, value: u64) {
        let at = (address - ARENA) as usize;
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn put_bytes(&mut self, address: u64, bytes: &[u8]) {
        let at = (address - ARENA) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// One code object of 50 instructions, two on each line from 11 on, or all on line 11.
    fn put_code(&mut self, layout: &Layout) {
        let (code, object) = (&layout.code, &layout.object);
        self.put(CODES, 1);
        self.put(CODES + object.size as u64, 50);
        self.put(CODES + object.kind as u64, TYPES.code);
        let first_line = CODES + code.first_line as u64;
        self.put_bytes(first_line, &10u32.to_le_bytes());
        let parts = [code.name, code.file, code.lines];
        let is_3_10 = code.instructions.is_none();
        let table = if is_3_10 {
            vec![100, 1]
        } else {
            [0xe9, 2].repeat(25)
        };
        for (part, content) in parts.iter().zip([&b"func"[..], b"file.py", &table]) {
            let at = CODES + 0x200 * (1 + *part as u64 % 7);
            let is_text = *part != code.lines;
            self.put(CODES + *part as u64, at);
            self.put(
                at + object.kind as u64,
                if is_text { TYPES.text } else { TYPES.bytes },
            );
            self.put(at + object.size as u64, content.len() as u64);
            if is_text {
                self.put(at + object.text_state as u64, 0x64);
            }
            let start = if is_text {
                object.ascii_text
            } else {
                object.bytes
            };
            self.put_bytes(at + start as u64, content);
        }
    }

    fn put_thread(&mut self, layout: &Layout, index: u64) {
        let fields = &layout.thread;
        let (thread, chunk) = (THREADS + index * 0x200, CHUNKS + index * 0x4000);
        let next = if index < 2 { thread + 0x200 } else { 0 };
        self.put(thread + fields.next as u64, next);
        self.put(thread + fields.interpreter as u64, INTERPRETER);
        self.put(thread + fields.ident as u64, index);
        if let Some(at) = fields.chunk {
            self.put(thread + at as u64, chunk);
        }
        self.put(chunk + 8, 0x4000);
        let current = chunk + 0x80 * DEPTH;
        match fields.frame {
            CurrentFrame::Direct(at) => self.put(thread + at as u64, current),
            CurrentFrame::Through { pointer, inside } => {
                self.put(thread + pointer as u64, chunk + 0x3f00);
                self.put(chunk + 0x3f00 + inside, current);
            }
        }
        for depth in 0..=DEPTH {
            self.put_frame(layout, chunk, depth);
        }
    }

    /// The outermost one marks where C called Python, or is where C did.
    fn put_frame(&mut self, layout: &Layout, chunk: u64, depth: u64) {
        let fields = &layout.frame;
        let at = chunk + 0x80 * depth;
        if depth == 0 {
            return;
        }
        let has_mark = depth == 1 && fields.first_shim_owner == 3;
        let previous = if depth == 1 { 0 } else { at - 0x80 };
        if fields.owner.is_none() {
            self.put(at, 1);
        }
        self.put(at + fields.code as u64, CODES);
        match fields.instruction {
            Instruction::Index(field) => {
                self.put_bytes(at + field as u64, &10u32.to_le_bytes());
            }
            Instruction::Pointer(field) => {
                let start = layout.code.instructions.unwrap() as u64;
                self.put(at + field as u64, CODES + start + 20);
            }
        }
        self.put(at + fields.previous as u64, previous);
        if let Some(field) = fields.owner {
            self.put_bytes(at + field as u64, &[if has_mark { 3 } else { 0 }]);
        }
        if let Some(field) = fields.is_entry {
            self.put_bytes(at + field as u64, &[1]);
        }
    }
}

impl Memory for Fake {
    fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>> {
        static READINGS: AtomicU64 = AtomicU64::new(0);
        let read = |(address, len): &Range| {
            let start = usize::try_from(address.checked_sub(ARENA)?).ok()?;
            let mut bytes = self.bytes.get(start..start.checked_add(*len)?)?.to_vec();
            let reading = READINGS.fetch_add(1, Ordering::Relaxed);
            for (at, value) in &self.restless {
                let byte = at.checked_sub(start).and_then(|at| bytes.get_mut(at));
                if let Some(byte) = byte.filter(|_| reading.is_multiple_of(3)) {
                    *byte = *value;
                }
            }
            Some(bytes)
        };
        ranges.iter().map(read).collect()
    }
}

#[test]
fn a_target_in_order_is_read() {
    assert_eq!(layouts().len(), 5);
    for layout in layouts() {
        let version = layout.version;
        let line = if version == (3, 10) { 11 } else { 16 };
        let depth = DEPTH as usize - usize::from(version >= (3, 12));
        let stacks = read_all(&Fake::new(&layout), layout, RUNTIME, SLOW_READ_TIMEOUT);
        assert_eq!(stacks.len(), 3, "{version:?}");
        for stack in &stacks {
            assert_eq!(
                (stack.missing, stack.frames.len()),
                (FrameGap::Nothing, depth)
            );
            let frame = &stack.frames[0];
            assert_eq!(
                (&*frame.func, frame.line),
                ("func", Some(line)),
                "{version:?}"
            );
            assert_eq!(frame.file.to_str(), Some("file.py"));
            assert_eq!(stack.gil == Gil::Holds, stack.ident == 0);
        }
    }
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        Just(0),
        Just(u64::MAX),
        0u64..300,
        (0..SIZE as u64 / 8).prop_map(|word| ARENA + word * 8),
        (0u64..12).prop_map(|index| CHUNKS + index * 0x80),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_damaged_target_is_survived(
        damage in prop::collection::vec((0..SIZE / 8, value()), 0..400),
        restless in prop::collection::vec((0..SIZE, any::<u8>()), 0..400),
    ) {
        for layout in layouts() {
            let mut fake = Fake::new(&layout);
            for (word, value) in &damage {
                fake.put(ARENA + *word as u64 * 8, *value);
            }
            fake.restless.clone_from(&restless);
            read_all(&fake, layout, RUNTIME, ENDLESS_READ_TIMEOUT);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_damaged_table_of_offsets_is_survived(
        damage in prop::collection::vec((3usize..100, prop_oneof![0u64..700, 0u64..70_000, value()]), 1..12),
    ) {
        for (version, mut table) in tables::ALL {
            let fake = published(version, &table).map(|layout| Fake::new(&layout)).unwrap();
            for (index, number) in &damage {
                table[*index] = *number;
            }
            if let Some(layout) = published(version, &table) {
                read_all(&fake, layout, RUNTIME, ENDLESS_READ_TIMEOUT);
            }
        }
    }
}
