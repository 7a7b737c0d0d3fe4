//! Code objects of the target: names, file and lines, read once each.
//!
//! An address is taken for a code object only if its type is `PyCode_Type` and its name, file and line table are text
//! and bytes. One that was read before is believed again only while its fields are the same, because memory is reused.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::sync::Arc;

use probing_process::memory::address_map::AddressMap;

use crate::memory::{Memory, u32_at, u64_at};
use crate::python::interpreter::Interpreter;
use crate::python::layout::Object;
use crate::python::line_table;
use crate::python::objects::text::{self, Form, TextLocation};

/// Read with the header of a `str` or `bytes`, in the hope that it is all.
const GUESS: usize = 320;
/// Longer names are cut.
const MAX_NAME: usize = 4 << 10;
/// Then all is forgotten: a target that makes code all the time must not fill our memory.
const MAX_KNOWN: usize = 100_000;
/// Of a line table: functions of a million instructions exist, made by machines.
const MAX_TABLE: usize = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) name: Arc<str>,
    pub(crate) file: Arc<Path>,
    first_line: u32,
    table: Vec<u8>,
    /// Length of the instructions in bytes, where the object says it.
    size: Option<u64>,
    is_3_10: bool,
    fields: Fields,
}

impl Code {
    /// The line of an instruction.
    ///
    /// A function that was called but did not begin yet is before its first instruction: it is on its first line.
    pub(crate) fn place(&self, offset: i64) -> line_table::LineLookup {
        let inside = match u64::try_from(offset) {
            Ok(inside) => inside,
            Err(_) if offset >= -2 => return line_table::LineLookup::Line(self.first_line),
            Err(_) => return line_table::LineLookup::Beyond,
        };
        if self.size.is_some_and(|size| inside >= size) {
            return line_table::LineLookup::Beyond;
        }
        if self.is_3_10 {
            line_table::of_3_10(&self.table, self.first_line, inside)
        } else {
            line_table::of_3_11(&self.table, self.first_line, inside)
        }
    }
}

/// What tells one code object from another at the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    name: u64,
    file: u64,
    table: u64,
    first_line: u32,
    size: u64,
}

/// The code objects seen so far; `None` for an address that holds none.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    known: AddressMap<Option<Arc<Code>>>,
}

impl Codes {
    pub(crate) fn get(&self, address: u64) -> Option<&Arc<Code>> {
        self.known.get(&address)?.as_ref()
    }

    /// Before a snapshot.
    pub(crate) fn keep_small(&mut self) {
        if self.known.len() > MAX_KNOWN {
            self.known.clear();
        }
    }

    /// What was found not to be code may be by now.
    pub(crate) fn forget_failures(&mut self) {
        self.known.retain(|_, code| code.is_some());
    }

    /// Makes sure that these were read, in a few rounds for all together.
    pub(crate) fn load(
        &mut self,
        interpreter: &Interpreter,
        memory: &(impl Memory + ?Sized),
        addresses: impl IntoIterator<Item = u64>,
    ) {
        let mut addresses: Vec<u64> = addresses.into_iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        let size = interpreter.layout.code.size();
        let ranges: Vec<_> = addresses.iter().map(|at| (*at, size)).collect();
        let mut wanted = Vec::new();
        for (address, bytes) in addresses.into_iter().zip(memory.read_many(&ranges)) {
            let fields = bytes.and_then(|bytes| Fields::parse(interpreter, &bytes));
            match (fields, self.known.get(&address)) {
                (Some(fields), Some(Some(known))) if known.fields == fields => {}
                (Some(fields), _) => wanted.push((address, fields)),
                (None, _) => drop(self.known.insert(address, None)),
            }
        }
        self.read(interpreter, memory, &wanted);
    }

    fn read(
        &mut self,
        interpreter: &Interpreter,
        memory: &(impl Memory + ?Sized),
        wanted: &[(u64, Fields)],
    ) {
        let object = &interpreter.layout.object;
        let types = interpreter.types;
        let parts: Vec<Part> = wanted
            .iter()
            .flat_map(|(_, fields)| {
                let part = |address, kind, limit| Part {
                    address,
                    kind,
                    limit,
                };
                [
                    part(fields.name, types.text, MAX_NAME),
                    part(fields.file, types.text, MAX_NAME),
                    part(fields.table, types.bytes, MAX_TABLE),
                ]
            })
            .collect();
        let contents = Part::read_all(&parts, object, memory);
        for ((address, fields), contents) in wanted.iter().zip(contents.chunks_exact(3)) {
            let code = match contents {
                [Some(name), Some(file), Some(table)] => Some(Arc::new(Code {
                    name: String::from_utf8_lossy(name).into(),
                    file: Path::new(&OsString::from_vec(file.clone())).into(),
                    first_line: fields.first_line,
                    table: table.clone(),
                    size: interpreter
                        .layout
                        .code
                        .instructions
                        .map(|_| fields.size.saturating_mul(2)),
                    is_3_10: interpreter.layout.code.instructions.is_none(),
                    fields: *fields,
                })),
                _ => None,
            };
            self.known.insert(*address, code);
        }
    }
}

impl Fields {
    fn parse(interpreter: &Interpreter, bytes: &[u8]) -> Option<Self> {
        let (code, object) = (&interpreter.layout.code, &interpreter.layout.object);
        let references = u64_at(bytes, 0)?;
        if u64_at(bytes, object.kind)? != interpreter.types.code || references == 0 {
            return None;
        }
        Some(Self {
            name: u64_at(bytes, code.name)?,
            file: u64_at(bytes, code.file)?,
            table: u64_at(bytes, code.lines)?,
            first_line: u32_at(bytes, code.first_line)?,
            size: match code.instructions {
                Some(_) => u64_at(bytes, object.size)?,
                None => 0,
            },
        })
    }
}

/// A `str` or `bytes` to be read.
#[derive(Debug, Clone, Copy)]
struct Part {
    address: u64,
    kind: u64,
    limit: usize,
}

impl Part {
    /// The bytes of each; text as UTF-8, where what stands for bytes that were none becomes those bytes again.
    fn read_all(
        parts: &[Self],
        object: &Object,
        memory: &(impl Memory + ?Sized),
    ) -> Vec<Option<Vec<u8>>> {
        let headers = object.other_text.max(object.bytes);
        let guess: Vec<_> = parts.iter().map(|part| (part.address, GUESS)).collect();
        let mut answers = memory.read_many(&guess);
        // A short object may be the last thing before memory that is not mapped.
        let again: Vec<usize> = (0..parts.len())
            .filter(|index| answers[*index].is_none())
            .collect();
        let ranges: Vec<_> = again
            .iter()
            .map(|index| (parts[*index].address, headers))
            .collect();
        for (index, answer) in again.iter().zip(memory.read_many(&ranges)) {
            answers[*index] = answer;
        }
        let extents: Vec<Option<Extent>> = parts
            .iter()
            .zip(&answers)
            .map(|(part, bytes)| Extent::of(*part, object, bytes.as_deref()?))
            .collect();
        let long: Vec<usize> = (0..parts.len())
            .filter(|index| match (&extents[*index], &answers[*index]) {
                (Some(extent), Some(bytes)) => extent.end() > bytes.len(),
                _ => false,
            })
            .collect();
        let ranges: Vec<_> = long
            .iter()
            .map(|index| {
                let end = extents[*index].map_or(0, Extent::end);
                (parts[*index].address, end)
            })
            .collect();
        for (index, answer) in long.iter().zip(memory.read_many(&ranges)) {
            answers[*index] = answer;
        }
        extents
            .iter()
            .zip(answers)
            .map(|(extent, bytes)| {
                let extent = (*extent)?;
                let bytes = bytes?;
                let content = bytes.get(extent.start..extent.end())?;
                Some(extent.decode(content))
            })
            .collect()
    }
}

/// Where the content of an object is and how it is stored.
#[derive(Debug, Clone, Copy)]
struct Extent {
    start: usize,
    len: usize,
    /// `None` for `bytes`.
    form: Option<Form>,
}

impl Extent {
    fn of(part: Part, object: &Object, bytes: &[u8]) -> Option<Self> {
        let text = part.limit == MAX_NAME;
        if u64_at(bytes, object.kind)? != part.kind {
            return None;
        }
        if !text {
            let count = usize::try_from(u64_at(bytes, object.size)?).ok()?;
            return (count <= part.limit).then_some(Self {
                start: object.bytes,
                len: count,
                form: None,
            });
        }
        let form = Form::parse(object, bytes)?;
        let TextLocation::Inside(start) = form.place else {
            return None;
        };
        Some(Self {
            start,
            len: form.count.min(part.limit) * form.width,
            form: Some(form),
        })
    }

    fn end(self) -> usize {
        self.start + self.len
    }

    fn decode(self, content: &[u8]) -> Vec<u8> {
        match self.form {
            Some(form) if form.width > 1 || !content.is_ascii() => {
                text::utf_8(form.decode(content))
            }
            _ => content.to_vec(),
        }
    }
}
