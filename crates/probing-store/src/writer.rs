//! The one writer of a ring.
//!
//! Who reads sees a row when the chunk's committed count has grown past it (a release store, after the row's values). A
//! chunk that is used again is first noted as gone and gets an odd generation, then a release fence, so that whoever has
//! copied any of the new values finds both when it looks again; then new contents, then the next even generation by a
//! release store. The ring's header says by another which generation is the newest: all that was stored in chunks before
//! it can be relied on.

mod seal;
mod trace_rows;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use probing_proto::process::ProcessKey;
use probing_proto::tables::schema::{Kind, Schema, SchemaError, Storage};

use crate::budget::Budget;
use crate::clock::{monotonic_nanos, wall_offset_nanos};
use crate::ring::columns::{Columns, put_bit, put_nothing};
use crate::ring::file::RingFile;
use crate::ring::header::{
    COMMITTED, FIRST_ROW, GENERATION, GONE, Header, NEWEST, Origin, SEALED, SLOTS_IN_USE,
    TEXT_USED, TS_MAX, TS_MIN, WALL_OFFSET,
};
use crate::ring::layout::{Layout, PAGE, Slab, values_bytes};
use crate::ring::memory::Memory;
use crate::ring::packed;
use crate::ring::sizing::Plan;
use crate::ring::strings::{Interned, Interner, MAX_STRING};
use crate::values::text::{self, IN_CHUNK, IN_HEAP, INLINE};
use crate::values::value::Value;

pub use self::trace_rows::TraceRowId;

/// A longer text is cut, and ends in [`CUT`].
const MAX_TEXT: usize = 16 << 10;
const CUT: &str = "…";
/// What a symbol is called when the heap had no room for its name.
const OTHER: &str = "(other)";
/// Chunks that a ring goes on with what it has after it did not get more.
const RETRY_CHUNKS: u64 = 64;
/// What a ring may have in the process's own memory.
const OWN_BYTES: u64 = 4 << 20;

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
pub enum WriterError {
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error("no memory for a ring of {table}: {source}")]
    NoMemory {
        table: String,
        #[source]
        source: io::Error,
    },
}

/// Why a row was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    #[error("a row of {given} values for a table of {wanted}")]
    Width { given: usize, wanted: usize },
    #[error("the value does not fit into column number {column}")]
    Misfit { column: usize },
}

/// The one writer of a ring.
#[derive(Debug)]
pub struct Writer {
    memory: Memory,
    layout: Layout,
    columns: Columns,
    schema: Schema,
    ground: RingMemory,
    strings: Option<Interner>,
    budget: Arc<Budget>,
    max_text: usize,
    bytes: u64,
    slots: u32,
    /// The slot to be used next when the ring does not grow.
    cursor: u32,
    /// How many chunks have begun.
    sequence: u64,
    /// After a file system that was full: how many must have begun before it is asked again.
    ask_again: u64,
    at: WritePosition,
    /// Whether its rows are those of a tracer.
    is_packed: bool,
    traced: trace_rows::TraceChunk,
}

/// Where the next row goes.
#[derive(Debug, Clone, Copy)]
struct WritePosition {
    head: u64,
    chunk: u64,
    row: u32,
    text_used: u32,
    first_row: u64,
    ts_min: i64,
    ts_max: i64,
}

/// What the memory comes from.
#[derive(Debug)]
enum RingMemory {
    File(RingFile),
    Own { reason: String },
}

impl Writer {
    /// Makes the file `path`, or, where there is no room for the usual chunks, one with smaller ones. When there is no room
    /// even for those the ring is in the process's own memory, and [`Writer::storage`] says so.
    pub fn create(
        path: &Path,
        schema: Schema,
        process: ProcessKey,
        shard: u32,
        budget: &Arc<Budget>,
    ) -> Result<Self, WriterError> {
        schema.check()?;
        let mut reason = format!(
            "the memory that may be used for recording is used up ({} bytes left)",
            budget.left()
        );
        for plan in Plan::all(&schema, budget.left()) {
            if !budget.take(plan.first_bytes, 0) {
                continue;
            }
            match in_file(path, &plan) {
                Ok((file, memory)) => {
                    let ground = RingMemory::File(file);
                    let budget = Arc::clone(budget);
                    let made_for = (schema.clone(), origin(process, shard));
                    return Ok(Self::begin(plan, memory, made_for, ground, budget));
                }
                Err(error) => {
                    budget.give_back(plan.first_bytes);
                    reason = format!("cannot make {}: {error}", path.display());
                }
            }
        }
        Self::own(schema, process, shard, reason)
    }

    /// A ring in the process's own memory, and why it is there.
    pub fn own(
        schema: Schema,
        process: ProcessKey,
        shard: u32,
        reason: String,
    ) -> Result<Self, WriterError> {
        schema.check()?;
        let no_memory = |source| WriterError::NoMemory {
            table: schema.table.clone(),
            source,
        };
        let plan = Plan::all(&schema, OWN_BYTES)
            .next()
            .ok_or_else(|| no_memory(io::ErrorKind::StorageFull.into()))?;
        let memory = Memory::own(plan.layout.bytes() as usize).map_err(no_memory)?;
        let budget = Budget::new(OWN_BYTES.saturating_sub(plan.first_bytes));
        let made_for = (schema, origin(process, shard));
        Ok(Self::begin(
            plan,
            memory,
            made_for,
            RingMemory::Own { reason },
            budget,
        ))
    }

    /// Appends one row: its time, on the clock of [`monotonic_nanos`], and a value for each other column.
    pub fn append(&mut self, ts: i64, values: &[Value<'_>]) -> Result<(), AppendError> {
        if values.len() != self.columns.count() {
            return Err(AppendError::Width {
                given: values.len(),
                wanted: self.columns.count(),
            });
        }
        if self.at.row == self.layout.shape.rows || !self.text_fits(values) {
            self.next_chunk();
        }
        let time = self.at.chunk + self.layout.slabs[0].values + 8 * u64::from(self.at.row);
        self.memory.put(time, ts);
        if self.columns.put(&mut self.memory, self.at.row, values) {
            self.commit(ts, self.at.text_used);
            Ok(())
        } else {
            self.append_any(ts, values)
        }
    }

    /// Any values, after the time.
    #[inline(never)]
    fn append_any(&mut self, ts: i64, values: &[Value<'_>]) -> Result<(), AppendError> {
        let mut text_used = self.at.text_used;
        for (before, value) in values.iter().enumerate() {
            let slab = self.layout.slabs[before + 1];
            if !self.put(slab, value, &mut text_used) {
                // What has been written of the row is overwritten by the next: it was never committed.
                return Err(AppendError::Misfit { column: before + 1 });
            }
        }
        self.commit(ts, text_used);
        Ok(())
    }

    /// Ends a ring that gets no more rows. Its rows stay; memory that none of them needs is given back.
    pub fn retire(self) {
        let RingMemory::File(file) = &self.ground else {
            return;
        };
        let mut freed = 0;
        for (begin, end) in self.unused() {
            if file.release(begin, end - begin).is_ok() {
                freed += end - begin;
            }
        }
        self.budget.give_back(freed);
    }

    /// Whole pages that no row has needed so far.
    fn unused(&self) -> Vec<(u64, u64)> {
        let WritePosition { chunk, row, .. } = self.at;
        // Once round, every chunk is in use.
        if self.sequence > u64::from(self.slots) {
            return Vec::new();
        }
        let begun = self.layout.chunk(self.sequence as u32);
        let mut unused = vec![(begun, self.layout.chunk(self.slots))];
        let ends = |slab: &Slab| chunk + slab.values + values_bytes(slab.kind, row);
        let begins = |slab: &Slab| chunk + slab.validity.unwrap_or(slab.values);
        let text = chunk + self.layout.text;
        let slabs = &self.layout.slabs;
        let next = slabs.iter().skip(1).map(begins).chain([text]);
        unused.extend(slabs.iter().map(ends).zip(next));
        unused.push((text + u64::from(self.at.text_used), begun));
        unused
            .into_iter()
            .map(|(begin, end)| (begin.next_multiple_of(PAGE), end / PAGE * PAGE))
            .filter(|(begin, end)| begin < end)
            .collect()
    }

    /// The number of one of few texts, for columns of symbols. The same text gives the same number.
    pub fn symbol(&mut self, text: &str) -> u32 {
        // Number 0 is "(other)".
        self.intern(text::beginning(text, MAX_STRING))
            .map_or(0, |interned| interned.id)
    }

    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Where the rows are.
    pub fn storage(&self) -> Storage {
        match &self.ground {
            RingMemory::File(_) => Storage::Shared,
            RingMemory::Own { reason } => Storage::Heap {
                reason: reason.clone(),
            },
        }
    }

    /// Rows written so far, those that are gone again among them.
    pub fn rows(&self) -> u64 {
        self.at.first_row + u64::from(self.at.row)
    }

    /// Memory that the ring has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn begin(
        plan: Plan,
        mut memory: Memory,
        (schema, origin): (Schema, Origin),
        ground: RingMemory,
        budget: Arc<Budget>,
    ) -> Self {
        let shape = plan.layout.shape;
        plan.write_schema(&mut memory);
        let mut writer = Self {
            strings: (shape.strings > 0).then(|| Interner::new(&plan.layout)),
            max_text: plan.max_text(MAX_TEXT),
            bytes: plan.first_bytes,
            slots: plan.first_chunks,
            columns: Columns::new(&plan.layout),
            layout: plan.layout,
            memory,
            is_packed: packed::is_packed(&schema),
            traced: trace_rows::TraceChunk::NOTHING,
            schema,
            ground,
            budget,
            cursor: 1,
            sequence: 0,
            ask_again: 0,
            at: WritePosition {
                head: 0,
                chunk: 0,
                row: 0,
                text_used: 0,
                first_row: 0,
                ts_min: i64::MAX,
                ts_max: i64::MIN,
            },
        };
        writer.intern(OTHER);
        writer.begin_chunk(0);
        let in_use = writer.memory.word32(SLOTS_IN_USE);
        in_use.store(writer.slots, Ordering::Release);
        let memory = &mut writer.memory;
        Header { origin, shape }.write(|at, bytes| memory.put_bytes(at, bytes));
        if let RingMemory::File(file) = &writer.ground
            && let Err(error) = file.publish()
        {
            // Nobody will find it: the same as no file.
            writer.ground = RingMemory::Own {
                reason: format!("cannot name the ring: {error}"),
            };
        }
        writer
    }

    #[inline]
    fn commit(&mut self, ts: i64, text_used: u32) {
        let head = self.at.head;
        // Before the row: a reader that sees it has bounds that hold it.
        if ts < self.at.ts_min {
            self.at.ts_min = ts;
            self.memory.put(head + TS_MIN, ts);
        }
        if ts > self.at.ts_max {
            self.at.ts_max = ts;
            self.memory.put(head + TS_MAX, ts);
        }
        if text_used != self.at.text_used {
            self.at.text_used = text_used;
            self.memory.put(head + TEXT_USED, text_used);
        }
        self.at.row += 1;
        // Release: whoever sees the count sees the row.
        let committed = self.memory.word32(head + COMMITTED);
        committed.store(self.at.row, Ordering::Release);
    }

    /// Stores a value of the row that is being written; false when it is not one for this column.
    #[inline]
    fn put(&mut self, slab: Slab, value: &Value<'_>, text_used: &mut u32) -> bool {
        let row = u64::from(self.at.row);
        let base = self.at.chunk + slab.values;
        let memory = &mut self.memory;
        match (slab.kind, *value) {
            (Kind::I64 | Kind::Time, Value::I64(value)) => memory.put(base + 8 * row, value),
            (Kind::F64, Value::F64(value)) => memory.put(base + 8 * row, value),
            (Kind::F64, Value::I64(value)) => memory.put(base + 8 * row, value as f64),
            (Kind::Symbol, Value::Symbol(id)) => memory.put(base + 4 * row, id),
            (Kind::Bool, Value::Bool(value)) => put_bit(memory, base, self.at.row, value),
            (Kind::I64, Value::Bool(value)) => memory.put(base + 8 * row, i64::from(value)),
            (Kind::Bytes16, Value::Bytes16(bytes)) => memory.put(base + 16 * row, bytes),
            (Kind::Text, Value::Text(text)) => {
                let view = self.put_text(text, text_used);
                self.memory.put(base + 16 * row, view);
            }
            (Kind::U8, Value::I64(value)) => match u8::try_from(value) {
                Ok(value) => memory.put(base + row, value),
                Err(_) => return false,
            },
            (Kind::U16, Value::I64(value)) => match u16::try_from(value) {
                Ok(value) => memory.put(base + 2 * row, value),
                Err(_) => return false,
            },
            (Kind::I32, Value::I64(value)) => match i32::try_from(value) {
                Ok(value) => memory.put(base + 4 * row, value),
                Err(_) => return false,
            },
            (Kind::U32, Value::I64(value)) => match u32::try_from(value) {
                Ok(value) => memory.put(base + 4 * row, value),
                Err(_) => return false,
            },
            (kind, Value::Null) => {
                if slab.validity.is_none() {
                    return false;
                }
                put_nothing(memory, kind, base, self.at.row);
            }
            _ => return false,
        }
        if let Some(validity) = slab.validity {
            let there = !matches!(value, Value::Null);
            put_bit(
                &mut self.memory,
                self.at.chunk + validity,
                self.at.row,
                there,
            );
        }
        true
    }

    /// Puts a text where it belongs and gives its view.
    fn put_text(&mut self, text: &str, text_used: &mut u32) -> u128 {
        if text.len() <= INLINE {
            return text::inline(text.as_bytes());
        }
        if let Some(interned) = self.intern(text) {
            return text::pointing(text.len(), text.as_bytes(), IN_HEAP, interned.begin);
        }
        let (kept, mark) = if text.len() > self.max_text {
            (text::beginning(text, self.max_text - CUT.len()), CUT)
        } else {
            (text, "")
        };
        let offset = *text_used;
        let place = self.at.chunk + self.layout.text + u64::from(offset);
        self.memory.put_bytes(place, kept.as_bytes());
        self.memory
            .put_bytes(place + kept.len() as u64, mark.as_bytes());
        let length = kept.len() + mark.len();
        *text_used += length as u32;
        text::pointing(length, kept.as_bytes(), IN_CHUNK, offset)
    }

    /// Whether the chunk has room for the texts of a row, even if none of them is a string of the heap.
    #[inline]
    fn text_fits(&self, values: &[Value<'_>]) -> bool {
        self.layout.shape.text_bytes == 0 || self.has_room(values)
    }

    #[inline(never)]
    fn has_room(&self, values: &[Value<'_>]) -> bool {
        let bytes = |value: &Value<'_>| match value {
            Value::Text(text) if text.len() > INLINE => text.len().min(self.max_text),
            _ => 0,
        };
        let wanted: usize = values.iter().map(bytes).sum();
        wanted <= (self.layout.shape.text_bytes - self.at.text_used) as usize
    }

    fn intern(&mut self, text: &str) -> Option<Interned> {
        let Self {
            strings,
            layout,
            memory,
            ground,
            budget,
            bytes,
            ..
        } = self;
        strings
            .as_mut()?
            .intern(text, layout, memory, |offset, more| {
                let got = reserve(ground, budget, offset, (*bytes, more));
                *bytes += if got { more } else { 0 };
                got
            })
    }

    /// Goes on in another chunk: a new one while the ring may grow, else the oldest.
    #[cold]
    fn next_chunk(&mut self) {
        self.seal();
        // Growing only where the round ends keeps the oldest chunk next in line.
        if self.cursor == self.slots && !self.grow() {
            self.cursor = 0;
        }
        let slot = self.cursor;
        self.cursor += 1;
        self.begin_chunk(slot);
    }

    fn begin_chunk(&mut self, slot: u32) {
        let (head, chunk) = (self.layout.head(slot), self.layout.chunk(slot));
        let first_row = self.rows();
        let (odd, even) = (2 * self.sequence + 1, 2 * self.sequence + 2);
        let generation = self.memory.word64(head + GENERATION);
        let before = generation.load(Ordering::Relaxed);
        if before > 0 {
            // The oldest goes first: those before it are gone already.
            self.memory.word64(GONE).store(before, Ordering::Relaxed);
        }
        generation.store(odd, Ordering::Relaxed);
        // Whoever has seen a store from below this fence finds those from above it, or later ones.
        fence(Ordering::Release);
        self.memory.put(head + COMMITTED, 0_u32);
        self.memory.put(head + SEALED, 0_u32);
        self.memory.put(head + TS_MIN, i64::MAX);
        self.memory.put(head + TS_MAX, i64::MIN);
        self.memory.put(head + WALL_OFFSET, wall_offset_nanos());
        self.memory.put(head + FIRST_ROW, first_row);
        self.memory.put(head + TEXT_USED, 0_u32);
        let generation = self.memory.word64(head + GENERATION);
        generation.store(even, Ordering::Release);
        // Release: whoever sees it sees all of the chunks before, sealed as they are.
        self.memory.word64(NEWEST).store(even, Ordering::Release);
        if self.sequence > 0 && before == 0 {
            // Who has filled one chunk fills the next one, too.
            self.memory.expect_writes(chunk, self.layout.chunk_bytes);
        }
        self.sequence += 1;
        self.columns.begin(&self.layout, chunk);
        self.at = WritePosition {
            head,
            chunk,
            row: 0,
            text_used: 0,
            first_row,
            ts_min: i64::MAX,
            ts_max: i64::MIN,
        };
        self.begin_traced();
    }

    fn grow(&mut self) -> bool {
        let bytes = self.layout.chunk_bytes;
        if self.slots == self.layout.shape.slots || self.sequence < self.ask_again {
            return false;
        }
        let heads = self.layout.heads_of(self.slots);
        let more_heads = self.layout.heads_of(self.slots + 1) - heads;
        let places = [
            (self.layout.heads + heads, more_heads),
            (self.layout.chunk(self.slots), bytes),
        ];
        let mut got = 0;
        for (at, more) in places.into_iter().filter(|(_, more)| *more > 0) {
            let sizes = (self.bytes + got, more);
            if !reserve(&self.ground, &self.budget, at, sizes) {
                self.budget.give_back(got);
                self.ask_again = self.sequence + RETRY_CHUNKS;
                return false;
            }
            got += more;
        }
        self.bytes += got;
        self.slots += 1;
        // The new chunk has generation 0 until it begins: readers pass over it.
        let in_use = self.memory.word32(SLOTS_IN_USE);
        in_use.store(self.slots, Ordering::Release);
        true
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.seal();
    }
}

fn origin(process: ProcessKey, shard: u32) -> Origin {
    let now = monotonic_nanos();
    Origin {
        process,
        boot_id: crate::ring_dir::boot_id(),
        made_monotonic_nanos: now,
        made_wall_nanos: now.wrapping_add(wall_offset_nanos()),
        shard,
    }
}

fn in_file(path: &Path, plan: &Plan) -> io::Result<(RingFile, Memory)> {
    let file = RingFile::create(path)?;
    match plan.reserve(&file) {
        Ok(memory) => Ok((file, memory)),
        Err(error) => {
            file.discard();
            Err(error)
        }
    }
}

/// More memory for a ring that has `bytes` already.
fn reserve(ground: &RingMemory, budget: &Budget, offset: u64, (bytes, more): (u64, u64)) -> bool {
    if !budget.take(more, bytes + more) {
        return false;
    }
    match ground {
        RingMemory::Own { .. } => true,
        RingMemory::File(file) => {
            let got = file.reserve(offset, more).is_ok();
            if !got {
                budget.give_back(more);
            }
            got
        }
    }
}
