//! `str` and `bytes`.
//!
//! A `str` keeps its characters in 1, 2 or 4 bytes each, after a header that is shorter for ASCII. One of a derived class
//! points to them, and one that C code made in an old way has only wide characters (until 3.11).

use std::borrow::Cow;

use crate::memory::{u32_at, u64_at};
use crate::python::layout::Object;
use crate::python::objects::{Gap, ReadResult, Type, View};

/// More than any process has.
const MAX_LENGTH: u64 = 1 << 44;

/// The first characters of a `str`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Characters<'a> {
    /// As they lie in memory.
    content: Cow<'a, [u8]>,
    /// Bytes for each.
    width: usize,
    /// How many there are in all.
    pub(crate) count: usize,
}

impl Characters<'_> {
    /// As code points: surrogates are possible.
    pub(crate) fn first(&self) -> impl Iterator<Item = u32> {
        decode(&self.content, self.width)
    }

    /// How many are here.
    pub(crate) fn len(&self) -> usize {
        self.content.len() / self.width
    }

    /// Those that are here, if all of them are ASCII.
    pub(crate) fn as_ascii(&self) -> Option<&str> {
        let is_ascii = self.width == 1 && self.content.is_ascii();
        std::str::from_utf8(&self.content).ok().filter(|_| is_ascii)
    }
}

/// How a `str` keeps its characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// Bytes for each character.
    pub(crate) width: usize,
    pub(crate) count: usize,
    pub(crate) place: TextLocation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextLocation {
    /// So many bytes after the start of the object.
    Inside(usize),
    /// At this address.
    At(u64),
}

impl Form {
    /// How many bytes of an object tell its form.
    pub(crate) fn size(object: &Object) -> usize {
        object.other_text + 8
    }

    /// From the first bytes of a `str`; those after `other_text` are needed for derived classes only.
    pub(crate) fn parse(object: &Object, bytes: &[u8]) -> Option<Self> {
        let count = u64_at(bytes, object.size).filter(|count| *count < MAX_LENGTH)?;
        let state = u32_at(bytes, object.text_state)? >> object.text_state_shift;
        let (width, compact, ascii) = (state & 7, state & 8 != 0, state & 16 != 0);
        let wide = object.wide.filter(|_| width == 0);
        let (count, place) = match wide {
            Some((at, len)) => (u64_at(bytes, len)?, TextLocation::At(u64_at(bytes, at)?)),
            None if !compact => (count, TextLocation::At(u64_at(bytes, object.other_text)?)),
            None if ascii => (count, TextLocation::Inside(object.ascii_text)),
            None => (count, TextLocation::Inside(object.other_text)),
        };
        let width = if wide.is_some() { 4 } else { width as usize };
        let is_form = matches!(width, 1 | 2 | 4) && count < MAX_LENGTH;
        is_form.then_some(Self {
            width,
            count: count as usize,
            place,
        })
    }

    pub(crate) fn decode(self, content: &[u8]) -> impl Iterator<Item = u32> {
        decode(content, self.width)
    }
}

fn decode(content: &[u8], width: usize) -> impl Iterator<Item = u32> {
    content.chunks_exact(width).map(|unit| {
        let bytes = unit.iter().rev();
        bytes.fold(0, |value, byte| value << 8 | u32::from(*byte))
    })
}

/// Text as UTF-8, where what stands for bytes that were none (`surrogateescape`) becomes those bytes again.
pub(crate) fn utf_8(characters: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in characters {
        match char::from_u32(value) {
            Some(char) => bytes.extend(char.encode_utf8(&mut [0; 4]).bytes()),
            None if (0xdc80..=0xdcff).contains(&value) => bytes.push(value as u8),
            None => bytes.extend("\u{fffd}".bytes()),
        }
    }
    bytes
}

impl<'a> View<'a> {
    /// The first characters of a `str`.
    pub(crate) fn characters(&self, object: u64, limit: usize) -> ReadResult<Characters<'a>> {
        let class = self.is(object, Type::TEXT)?;
        self.known_characters(object, &class, limit)
    }

    /// The first characters of what is known to be one.
    pub(crate) fn known_characters(
        &self,
        object: u64,
        class: &Type,
        limit: usize,
    ) -> ReadResult<Characters<'a>> {
        let layout = &self.interpreter.layout.object;
        let is_exact = class.address == self.interpreter.types.text;
        let size = Form::size(layout).min(if is_exact {
            layout.other_text
        } else {
            usize::MAX
        });
        let header = self.bytes(object, size)?;
        let form = Form::parse(layout, &header).ok_or(Gap::Wrong)?;
        let at = match form.place {
            TextLocation::Inside(offset) => object.checked_add(offset as u64).ok_or(Gap::Wrong)?,
            TextLocation::At(address) => address,
        };
        let content = self.bytes(at, form.count.min(limit) * form.width)?;
        if form.width == 4 && form.decode(&content).any(|value| value > char::MAX as u32) {
            return Err(Gap::Wrong);
        }
        Ok(Characters {
            content,
            width: form.width,
            count: form.count,
        })
    }

    /// The first characters of a `str`, as far as they are characters.
    pub(crate) fn text(&self, object: u64, limit: usize) -> ReadResult<String> {
        let characters = self.characters(object, limit)?;
        if let Some(text) = characters.as_ascii() {
            return Ok(text.to_owned());
        }
        let text = utf_8(characters.first());
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The first of a `bytes`, and how many there are.
    pub(crate) fn byte_string(
        &self,
        object: u64,
        limit: usize,
    ) -> ReadResult<(Cow<'a, [u8]>, usize)> {
        self.is(object, Type::BYTES)?;
        let layout = &self.interpreter.layout.object;
        let count = self.word(object, layout.size)?;
        if count > MAX_LENGTH {
            return Err(Gap::Wrong);
        }
        let at = object.checked_add(layout.bytes as u64).ok_or(Gap::Wrong)?;
        let first = self.bytes(at, limit.min(count as usize))?;
        Ok((first, count as usize))
    }
}

#[cfg(test)]
impl Characters<'static> {
    /// Four bytes for each, and `more` that are not here.
    pub(crate) fn of(first: &[u32], more: usize) -> Self {
        Self {
            content: first.iter().flat_map(|value| value.to_le_bytes()).collect(),
            width: 4,
            count: first.len() + more,
        }
    }

    /// One byte for each.
    pub(crate) fn narrow(content: &'static [u8]) -> Self {
        Self {
            content: content.into(),
            width: 1,
            count: content.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(width: usize, content: &[u8]) -> Vec<u8> {
        let form = Form {
            width,
            count: 0,
            place: TextLocation::At(0),
        };
        utf_8(form.decode(content))
    }

    #[test]
    fn text_of_every_width_becomes_utf_8() {
        assert_eq!(decoded(1, b"abc"), b"abc");
        assert_eq!(decoded(1, &[0xe9]), "é".as_bytes());
        assert_eq!(decoded(2, &[0x00, 0x4e, 0x78, 0]), "一x".as_bytes());
        assert_eq!(decoded(4, &[0x00, 0xf6, 0x01, 0]), "😀".as_bytes());
    }

    #[test]
    fn the_form_of_text_is_in_its_header() {
        let object = |wide| Object {
            kind: 8,
            size: 16,
            text_state: 32,
            text_state_shift: 2,
            ascii_text: 48,
            other_text: 72,
            wide,
            bytes: 32,
        };
        let form = |state: u32, wide| {
            let mut bytes = vec![0; 80];
            bytes[16] = 3;
            bytes[32..36].copy_from_slice(&(state << 2).to_le_bytes());
            (bytes[40], bytes[64], bytes[72]) = (0x11, 5, 0x22);
            let form = Form::parse(&object(wide), &bytes)?;
            Some((form.width, form.count, form.place))
        };
        let old = Some((40, 64));
        for wide in [None, old] {
            assert_eq!(form(0b11_001, wide), Some((1, 3, TextLocation::Inside(48))));
            assert_eq!(form(0b01_010, wide), Some((2, 3, TextLocation::Inside(72))));
            assert_eq!(form(0b01_100, wide), Some((4, 3, TextLocation::Inside(72))));
            assert_eq!(form(0b00_100, wide), Some((4, 3, TextLocation::At(0x22))));
            assert_eq!(form(0b01_011, wide), None);
        }
        // Only wide characters, until 3.11.
        assert_eq!(form(0, old), Some((4, 5, TextLocation::At(0x11))));
        assert_eq!(form(0, None), None);
    }

    #[test]
    fn bytes_of_a_path_that_are_not_utf_8_come_back() {
        assert_eq!(decoded(2, &[b'a', 0, 0xff, 0xdc]), b"a\xff");
        assert_eq!(decoded(2, &[0x00, 0xd8]), "\u{fffd}".as_bytes());
    }
}
