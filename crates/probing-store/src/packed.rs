//! Rows of tracers: 32 bytes each in their rings, columns of `python.trace_event` when they are read.
//!
//! A tracer writes tens of millions of rows a second at worst. What it knows of a function is one string of the heap, and
//! what fits into a word is in one: the reader takes both apart, for the columns that somebody asks for.

use std::sync::Arc;

use probing_proto::own::TRACE_EVENT;
use probing_proto::store::{Column, Kind, Schema, TIME};

use crate::bytes::Bytes;
use crate::error::ReadError;
use crate::memory::Words;
use crate::reader::{Ring, RingChunk};
use crate::snapshot::{ColumnData, Strings};
use crate::text;
use crate::writer::Writer;

/// The columns of such a ring, behind its time.
const COLUMNS: [(&str, Kind); 5] = [
    ("packed_function", Kind::Symbol),
    ("packed_duration", Kind::I64),
    ("thread_id", Kind::U32),
    ("packed_step", Kind::U32),
    ("packed_shape", Kind::U32),
];
const FUNCTION: usize = 1;
const DURATION: usize = 2;
const THREAD: usize = 3;
const STEP: usize = 4;
const SHAPE: usize = 5;
/// As rows are written: those of 64 bits, and those of 32.
pub(crate) const LONGS: [usize; 2] = [0, DURATION];
pub(crate) const WORDS: [usize; 4] = [FUNCTION, THREAD, STEP, SHAPE];

const NO_DURATION: i64 = -1;
const NO_STEP: u32 = u32::MAX;
/// Between the parts of what is known of a function.
const BETWEEN: char = '\u{1f}';
/// Bytes of a string of the heap, and those of a name in it.
const MAX_FUNCTION: usize = 255;
const MAX_NAME: usize = 120;

/// What a function did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Did {
    Call = 0,
    Return = 1,
    /// A generator or a coroutine was left for the time being.
    Yield = 2,
    Resume = 3,
    /// It was left by an exception.
    Exception = 4,
}

const KINDS: [&str; 5] = ["call", "return", "yield", "resume", "exception"];

/// One row of a tracer.
#[derive(Debug, Clone, Copy)]
pub struct TraceRow {
    pub ts: i64,
    pub did: Did,
    /// What [`Writer::function`] gave.
    pub function: u32,
    pub thread_id: u32,
    pub depth: u16,
    /// How long it had run since it was called, or came back to.
    pub duration_nanos: Option<i64>,
    pub step: Option<i64>,
}

/// The schema of a ring of such rows.
pub fn schema() -> Schema {
    let column = |(name, kind): (&str, Kind)| Column {
        name: name.to_owned(),
        kind,
        nullable: false,
        doc: String::new(),
    };
    let time = (TIME, Kind::Time);
    Schema {
        table: TRACE_EVENT.name.to_owned(),
        columns: std::iter::once(time).chain(COLUMNS).map(column).collect(),
    }
}

impl Writer {
    /// The number of a function, for rows of tracers.
    pub fn function(&mut self, name: &str, file: &str, line: u32) -> u32 {
        let name = text::beginning(name, MAX_NAME);
        let begin = format!("{line}{BETWEEN}{name}{BETWEEN}");
        let room = MAX_FUNCTION - begin.len();
        // Of a long path the end says more than the beginning.
        let cut = file.len().saturating_sub(room);
        let file = &file[file.ceil_char_boundary(cut)..];
        self.symbol(&format!("{begin}{file}"))
    }

    /// Appends a row of a tracer to a ring that was made with [`schema`].
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "in a call of its own the row would pass through memory twice"
    )]
    pub fn append_trace(&mut self, row: &TraceRow) {
        let step = row.step.and_then(|step| u32::try_from(step).ok());
        let step = step.unwrap_or(NO_STEP);
        let shape = u32::from(row.depth) << 8 | u32::from(row.did as u8);
        self.append_words(Words {
            longs: [row.ts, row.duration_nanos.unwrap_or(NO_DURATION)],
            words: [row.function, row.thread_id, step, shape],
        });
    }
}

/// A column of `python.trace_event` that is not in the ring as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packed {
    Kind,
    Name,
    File,
    Line,
    Depth,
    Duration,
    Step,
}

/// Those that a ring of tracers has.
const SHOWN: [(&str, Packed); 8] = [
    ("kind", Packed::Kind),
    ("name", Packed::Name),
    ("function", Packed::Name),
    ("file", Packed::File),
    ("lineno", Packed::Line),
    ("depth", Packed::Depth),
    ("duration_ns", Packed::Duration),
    ("step", Packed::Step),
];

/// Whether a ring is one of tracers.
pub(crate) fn is_packed(found: &Schema) -> bool {
    found.table == TRACE_EVENT.name
        && found.columns.len() == 1 + COLUMNS.len()
        && found
            .columns
            .iter()
            .skip(1)
            .zip(COLUMNS)
            .all(|(column, own)| (column.name.as_str(), column.kind) == own && !column.nullable)
}

/// Whether a column of such a ring is never shown as it is: nobody asks for its bounds.
pub(crate) fn is_taken_apart(column: usize) -> bool {
    column != 0 && column != THREAD
}

/// The columns that a ring of tracers is shown with.
pub(crate) fn columns() -> Vec<Column> {
    let all = TRACE_EVENT.all_columns().into_iter();
    let is_there = |column: &Column| place(&column.name).is_some() || column.name == TIME;
    all.filter(|column| is_there(column) || column.name == COLUMNS[THREAD - 1].0)
        .collect()
}

pub(crate) fn place(name: &str) -> Option<Packed> {
    let shown = SHOWN.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
    shown.map(|(_, packed)| *packed)
}

/// What is in the strings of a ring of tracers, by number.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    names: Vec<u128>,
    files: Vec<u128>,
    lines: Vec<u32>,
}

impl Functions {
    pub(crate) fn of(strings: &Strings) -> Self {
        let mut functions = Self::default();
        for (begin, string) in strings.all() {
            let mut parts = string.splitn(3, BETWEEN);
            let (first, second, third) = (parts.next(), parts.next(), parts.next());
            // What is no function is "(other)": functions for which the heap had no room.
            let (line, name, file) = match (first, second, third) {
                (Some(line), Some(name), Some(file)) => (line, name, file),
                _ => ("", string, ""),
            };
            let view = |part: &str| {
                let offset = begin + (part.as_ptr() as usize - string.as_ptr() as usize);
                text::view(part.as_bytes(), offset as u32)
            };
            functions.names.push(view(name));
            functions
                .files
                .push(if file.is_empty() { 0 } else { view(file) });
            functions.lines.push(line.parse().unwrap_or(0));
        }
        functions
    }
}

/// Copies such a column of a chunk. As [`Ring::column`] it is to be believed only if the chunk is still there afterwards.
pub(crate) fn column(
    (ring, chunk): (&Ring, &RingChunk),
    packed: Packed,
    strings: &dyn Fn() -> Result<Arc<Strings>, ReadError>,
    functions: &dyn Fn() -> Result<Arc<Functions>, ReadError>,
) -> Result<Option<ColumnData>, ReadError> {
    let from = match packed {
        Packed::Kind | Packed::Depth => SHAPE,
        Packed::Name | Packed::File | Packed::Line => FUNCTION,
        Packed::Duration => DURATION,
        Packed::Step => STEP,
    };
    let Some(raw) = ring.raw(chunk, from)? else {
        return Ok(None);
    };
    let words = || {
        let words = raw.as_slice().as_chunks::<4>().0.iter();
        words.map(|word| u32::from_le_bytes(*word))
    };
    let number = |id: u32| id as usize;
    Ok(Some(match packed {
        Packed::Kind => {
            let views: Vec<u128> = KINDS
                .iter()
                .map(|kind| text::inline(kind.as_bytes()))
                .collect();
            let kind = |shape: u32| views.get(number(shape & 0xff)).copied().unwrap_or(0);
            texts(words().map(kind), None)
        }
        Packed::Name | Packed::File => {
            let (functions, strings) = (functions()?, strings()?);
            let views = if packed == Packed::Name {
                &functions.names
            } else {
                &functions.files
            };
            let heap = Arc::clone(strings.heap());
            texts(
                words().map(|id| views.get(number(id)).copied().unwrap_or(0)),
                Some(heap),
            )
        }
        Packed::Line => {
            let functions = functions()?;
            let line = |id: u32| functions.lines.get(number(id)).copied().unwrap_or(0);
            numbers(Kind::U32, words().map(|id| Some(line(id).to_le_bytes())))
        }
        Packed::Depth => numbers(
            Kind::U32,
            words().map(|shape| Some((shape >> 8).to_le_bytes())),
        ),
        Packed::Step => numbers(
            Kind::I64,
            words().map(|step| (step != NO_STEP).then(|| i64::from(step).to_le_bytes())),
        ),
        Packed::Duration => {
            let values = raw.as_slice().as_chunks::<8>().0.iter();
            let is_there = |value: &[u8; 8]| i64::from_le_bytes(*value) != NO_DURATION;
            numbers(
                Kind::I64,
                values.map(|value| is_there(value).then_some(*value)),
            )
        }
    }))
}

fn texts(views: impl ExactSizeIterator<Item = u128>, heap: Option<Arc<Bytes>>) -> ColumnData {
    let column = numbers(Kind::Text, views.map(|view| Some(view.to_le_bytes())));
    ColumnData {
        texts: Some([Arc::default(), heap.unwrap_or_default()]),
        ..column
    }
}

/// A column of numbers, some of which may be missing.
fn numbers<const N: usize>(
    kind: Kind,
    values: impl ExactSizeIterator<Item = Option<[u8; N]>>,
) -> ColumnData {
    let rows = values.len();
    let mut bytes = Bytes::zeroed(N * rows);
    let mut bits = Bytes::zeroed(rows.div_ceil(8));
    let mut count = 0;
    let slots = bytes.as_mut_slice().as_chunks_mut::<N>().0.iter_mut();
    for (row, (value, slot)) in values.zip(slots).enumerate() {
        if let Some(value) = value {
            *slot = value;
            bits.as_mut_slice()[row / 8] |= 1 << (row % 8);
            count += 1;
        }
    }
    ColumnData {
        kind,
        rows,
        validity: (count < rows).then_some(bits),
        values: bytes,
        texts: None,
    }
}
