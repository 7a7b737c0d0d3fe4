//! Rows of tracers: 32 bytes for two of them in their rings, columns of `python.trace_event` when they are read.
//!
//! A tracer writes tens of millions of rows a second at worst. What it knows of a function is one string of the heap, and
//! what fits into a word is in one: the reader takes both apart, for the columns that somebody asks for.
//!
//! A record is written when something begins, and is a row from then on. When that ends while the chunk is still being
//! written, how it ended and how long it took is stored into the same record, at once: from then on it is two rows. If it
//! ends later, its end is a record of its own. So what has begun and not ended can be seen at any time, and chunks that are
//! full do not change.
//!
//! A line is a record that gets no end, only how long it took, when the next line is come to while the chunk is still being
//! written.

use std::sync::Arc;

use probing_proto::tables::builtin::TRACE_EVENT;
use probing_proto::tables::schema::{Column, Kind, Schema, TIME};

use crate::error::ReadError;
use crate::reader::{Ring, RingChunk};
use crate::ring::memory::RawRow;
use crate::snapshot::{ColumnData, Strings};
use crate::values::bytes::Bytes;
use crate::values::text;
use crate::writer::{TraceRowId, Writer};

/// The columns of such a ring, behind its time.
const COLUMNS: [(&str, Kind); 5] = [
    ("packed_function", Kind::Symbol),
    ("packed_duration", Kind::I64),
    ("thread_id", Kind::U32),
    ("packed_step", Kind::U32),
    ("packed_shape", Kind::U32),
];
const FUNCTION: usize = 1;
pub(crate) const DURATION: usize = 2;
const THREAD: usize = 3;
const STEP: usize = 4;
const SHAPE: usize = 5;
/// As rows are written: those of 64 bits, and those of 32.
pub(crate) const LONGS: [usize; 2] = [0, DURATION];
pub(crate) const WORDS: [usize; 4] = [FUNCTION, THREAD, STEP, SHAPE];
/// The place of the step among them.
pub(crate) const STEP_WORD: usize = 2;

const NO_DURATION: i64 = -1;
/// How what began in the same record ended stands above its duration: a [`Did`], which is never 0.
const END_SHIFT: u32 = 60;
const NO_STEP: u32 = u32::MAX;
/// Between the parts of what is known of a function.
const BETWEEN: char = '\u{1f}';
/// Bytes of a string of the heap, and those of a name in it.
const MAX_FUNCTION: usize = 255;
const MAX_NAME: usize = 120;

/// What a function did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TraceEventKind {
    Call = 0,
    Return = 1,
    /// A generator or a coroutine was left for the time being.
    Yield = 2,
    Resume = 3,
    /// It was left by an exception.
    Exception = 4,
}

/// What stands in place of a [`Did`] in the record of a line.
const LINE: u8 = 5;
const KINDS: [&str; 6] = ["call", "return", "yield", "resume", "exception", "line"];

/// One row of a tracer.
#[derive(Debug, Clone, Copy)]
pub struct TraceRow {
    pub ts: i64,
    pub did: TraceEventKind,
    /// What [`Writer::function`] gave.
    pub function: u32,
    pub thread_id: u32,
    pub depth: u16,
    /// How long it had run since it was called, or came back to.
    pub duration_nanos: Option<i64>,
    pub step: Option<i64>,
}

/// A thread comes to a line of a function.
#[derive(Debug, Clone, Copy)]
pub struct LineRow {
    pub ts: i64,
    /// What [`Writer::function`] gave for the function, with this line.
    pub line: u32,
    pub thread_id: u32,
    pub depth: u16,
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
    pub fn append_trace(&mut self, row: &TraceRow) -> TraceRowId {
        let words = row.words();
        self.append_words(words)
            .unwrap_or_else(|| self.append_words_anywhere(words))
    }

    /// Where the next row goes, if there is room for it where rows go at the moment.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub fn next_trace(&self) -> Option<TraceRowId> {
        self.next_words()
    }

    /// Appends a row there.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub fn append_trace_here(&mut self, row: &TraceRow) -> Option<TraceRowId> {
        self.append_words(row.words())
    }

    /// Tells in a row how what began there ended, and how long it took. False: the row is of another step, or its place is full by now;
    /// the end needs a row of its own.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as that of a beginning")]
    pub fn end_trace(
        &mut self,
        place: TraceRowId,
        did: TraceEventKind,
        took: i64,
        step: Option<i64>,
    ) -> bool {
        let end = i64::from(did as u8) << END_SHIFT | took;
        self.end_words(place, step_word(step), end)
    }

    /// Appends the row of a line.
    pub fn append_line(&mut self, row: &LineRow) -> TraceRowId {
        let words = row.words();
        self.append_words(words)
            .unwrap_or_else(|| self.append_words_anywhere(words))
    }

    /// Tells in the row of a line how long it took. False: the place of that row is full by now, and nobody tells.
    pub fn end_line(&mut self, place: TraceRowId, took: i64) -> bool {
        self.put_duration(place, took)
    }
}

impl LineRow {
    fn words(&self) -> RawRow {
        RawRow {
            longs: [self.ts, NO_DURATION],
            words: [
                self.line,
                self.thread_id,
                step_word(self.step),
                shape(self.depth, LINE),
            ],
        }
    }
}

impl TraceRow {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn words(&self) -> RawRow {
        let shape = shape(self.depth, self.did as u8);
        RawRow {
            longs: [self.ts, self.duration_nanos.unwrap_or(NO_DURATION)],
            words: [self.function, self.thread_id, step_word(self.step), shape],
        }
    }
}

#[inline]
fn shape(depth: u16, kind: u8) -> u32 {
    u32::from(depth) << 8 | u32::from(kind)
}

#[inline]
fn step_word(step: Option<i64>) -> u32 {
    let step = step.and_then(|step| u32::try_from(step).ok());
    step.unwrap_or(NO_STEP)
}

/// A column of `python.trace_event` that is put together from what a tracer wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packed {
    Time,
    Thread,
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
    ("func", Packed::Name),
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

/// What a column of such a ring is shown as that is shown under its own name.
pub(crate) fn as_it_is(column: usize) -> Packed {
    if column == THREAD {
        Packed::Thread
    } else {
        Packed::Time
    }
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

/// The records of a chunk at one moment.
#[derive(Debug)]
pub(crate) struct Records {
    /// How many rows they are.
    pub(crate) rows: usize,
    /// What was known of their ends then, where some still got one.
    durations: Option<Bytes>,
}

/// What the records of a chunk are at this moment. The bounds of their times are known of chunks that are full, and found
/// here for others.
pub(crate) fn records(ring: &Ring, chunk: &mut RingChunk) -> Result<Records, ReadError> {
    let records = chunk.rows as usize;
    if let Some(tally) = chunk.tally(DURATION) {
        return Ok(Records {
            rows: records + tally.values as usize,
            durations: None,
        });
    }
    let (Some(times), Some(durations)) = (ring.raw(chunk, 0)?, ring.raw(chunk, DURATION)?) else {
        // It is gone, as who reads it will find.
        return Ok(Records {
            rows: records,
            durations: None,
        });
    };
    (chunk.ts_min, chunk.ts_max) = bounds(times.as_slice(), durations.as_slice());
    let ended = longs(durations.as_slice()).filter(|duration| end(*duration).is_some());
    Ok(Records {
        rows: records + ended.count(),
        durations: Some(durations),
    })
}

/// The first and the last time of records. Without any the first is later than the last.
pub(crate) fn bounds(times: &[u8], durations: &[u8]) -> (i64, i64) {
    let mut bounds = (i64::MAX, i64::MIN);
    for (time, duration) in longs(times).zip(longs(durations)) {
        let took = end(duration).map_or(0, |(_, took)| took);
        bounds.0 = bounds.0.min(time);
        bounds.1 = bounds.1.max(time.saturating_add(took));
    }
    bounds
}

/// The rows of a chunk in the order of their times: for each the record, and whether it is the end of it.
#[derive(Debug)]
pub(crate) struct PackedRows {
    rows: Vec<(u32, bool)>,
    durations: Vec<i64>,
}

/// `None`: they are gone. To be believed only if the chunk is still there afterwards, as what is copied with it.
pub(crate) fn rows(
    ring: &Ring,
    chunk: &RingChunk,
    records: &Records,
) -> Result<Option<PackedRows>, ReadError> {
    let (Some(times), found) = (ring.raw(chunk, 0)?, ring.raw(chunk, DURATION)?) else {
        return Ok(None);
    };
    let Some(durations) = records.durations.as_ref().or(found.as_ref()) else {
        return Ok(None);
    };
    let (times, durations): (Vec<i64>, Vec<i64>) = (
        longs(times.as_slice()).collect(),
        longs(durations.as_slice()).collect(),
    );
    let began = (0..durations.len() as u32).map(|record| (record, false));
    // Of what ends at one moment the inner is first.
    let ended = (0..durations.len() as u32)
        .rev()
        .filter(|record| end(durations[*record as usize]).is_some())
        .map(|record| (record, true));
    let mut rows: Vec<(u32, bool)> = began.chain(ended).collect();
    rows.sort_by_key(|(record, is_end)| {
        let record = *record as usize;
        let took = end(durations[record]).filter(|_| *is_end);
        times[record].saturating_add(took.unwrap_or_default().1)
    });
    if rows.len() == records.rows {
        Ok(Some(PackedRows { rows, durations }))
    } else {
        Err(ring.damaged("other ends than it says"))
    }
}

/// How what began in a record ended, and how long it took, if that is there.
fn end(duration: i64) -> Option<(usize, i64)> {
    let did = duration >> END_SHIFT;
    (did > 0).then_some((did as usize, duration & ((1 << END_SHIFT) - 1)))
}

fn longs(raw: &[u8]) -> impl ExactSizeIterator<Item = i64> + '_ {
    let longs = raw.as_chunks::<8>().0.iter();
    longs.map(|long| i64::from_le_bytes(*long))
}

impl PackedRows {
    /// How long what a row tells of took, if it is told.
    fn took(&self, (record, is_end): (u32, bool)) -> Option<i64> {
        let duration = self.durations[record as usize];
        match end(duration) {
            Some((_, took)) => is_end.then_some(took),
            None => (duration != NO_DURATION).then_some(duration),
        }
    }

    /// What a function did, by its number among [`KINDS`].
    fn did(&self, (record, is_end): (u32, bool), shape: u32) -> usize {
        match end(self.durations[record as usize]) {
            Some((did, _)) if is_end => did,
            _ => (shape & 0xff) as usize,
        }
    }
}

/// Copies such a column of a chunk. As [`Ring::column`] it is to be believed only if the chunk is still there afterwards.
pub(crate) fn column(
    (ring, chunk, rows): (&Ring, &RingChunk, &PackedRows),
    packed: Packed,
    strings: &dyn Fn() -> Result<Arc<Strings>, ReadError>,
    functions: &dyn Fn() -> Result<Arc<Functions>, ReadError>,
) -> Result<Option<ColumnData>, ReadError> {
    let from = match packed {
        Packed::Time => 0,
        Packed::Thread => THREAD,
        Packed::Kind | Packed::Depth => SHAPE,
        Packed::Name | Packed::File | Packed::Line => FUNCTION,
        Packed::Duration => DURATION,
        Packed::Step => STEP,
    };
    let Some(raw) = ring.raw(chunk, from)? else {
        return Ok(None);
    };
    let all = rows.rows.iter();
    let word = |record: u32| {
        let words = raw.as_slice().as_chunks::<4>().0;
        words
            .get(record as usize)
            .map_or(0, |word| u32::from_le_bytes(*word))
    };
    let words = || all.clone().map(|(record, _)| word(*record));
    let number = |id: u32| id as usize;
    Ok(Some(match packed {
        Packed::Time => {
            let times: Vec<i64> = longs(raw.as_slice()).collect();
            let time = |row: &(u32, bool)| {
                let began = times.get(row.0 as usize).copied().unwrap_or_default();
                let took = rows.took(*row).filter(|_| row.1).unwrap_or_default();
                began.wrapping_add(took).wrapping_add(chunk.wall_offset)
            };
            numbers(Kind::Time, all.map(|row| Some(time(row).to_le_bytes())))
        }
        Packed::Thread => numbers(Kind::U32, words().map(|id| Some(id.to_le_bytes()))),
        Packed::Kind => {
            let views: Vec<u128> = KINDS
                .iter()
                .map(|kind| text::inline(kind.as_bytes()))
                .collect();
            let kind = |row: &(u32, bool)| rows.did(*row, word(row.0));
            let view = |row| views.get(kind(row)).copied().unwrap_or(0);
            texts(all.map(view), None)
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
            let took = |row: &(u32, bool)| rows.took(*row).map(i64::to_le_bytes);
            numbers(Kind::I64, all.map(took))
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
