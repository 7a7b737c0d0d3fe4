//! Text as Arrow's string views have it: sixteen bytes that hold a short text, or say where a longer one is.

/// A text up to this length is in its view.
pub(crate) const INLINE: usize = 12;
/// The text of the row's own chunk.
pub(crate) const IN_CHUNK: u32 = 0;
/// The heap of strings.
pub(crate) const IN_HEAP: u32 = 1;

/// The view of a text that is short enough to be in it; what follows the text is zero.
pub(crate) fn inline(text: &[u8]) -> u128 {
    let mut view = [0; 16];
    view[..4].copy_from_slice(&(text.len() as u32).to_le_bytes());
    view[4..4 + text.len()].copy_from_slice(text);
    u128::from_le_bytes(view)
}

/// The view of a longer text that is `offset` bytes into a buffer.
pub(crate) fn pointing(length: usize, first: &[u8], buffer: u32, offset: u32) -> u128 {
    let mut prefix = [0; 4];
    prefix.copy_from_slice(&first[..4]);
    u128::from(length as u32)
        | u128::from(u32::from_le_bytes(prefix)) << 32
        | u128::from(buffer) << 64
        | u128::from(offset) << 96
}

/// The view of a text that is in the heap.
pub(crate) fn view(text: &[u8], offset: u32) -> u128 {
    if text.len() <= INLINE {
        inline(text)
    } else {
        pointing(text.len(), text, IN_HEAP, offset)
    }
}

/// The view of a short text with zero behind it.
pub(crate) fn without_rest(view: u128, length: usize) -> u128 {
    debug_assert!(length <= INLINE, "only short texts are in their views");
    let unused = 8 * (INLINE - length);
    view << unused >> unused
}

/// Whether a short text is of ASCII alone.
pub(crate) fn is_ascii(view: u128) -> bool {
    const HIGH: u128 = 0x8080_8080_8080_8080_8080_8080 << 32;
    view & HIGH == 0
}

/// Where a text is, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextLocation {
    Inline {
        length: usize,
    },
    Buffer {
        buffer: u32,
        offset: usize,
        length: usize,
    },
}

pub(crate) fn whereabouts(view: u128) -> TextLocation {
    let length = view as u32 as usize;
    if length <= INLINE {
        TextLocation::Inline { length }
    } else {
        TextLocation::Buffer {
            buffer: (view >> 64) as u32,
            offset: (view >> 96) as u32 as usize,
            length,
        }
    }
}

/// The longest beginning of `text` of at most `bytes` bytes that ends where a character does.
pub(crate) fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_is_cut_from_what_follows_it() {
        for text in ["", "a", "forward", "ä", "twelve bytes"] {
            let clean = inline(text.as_bytes());
            let dirty = clean | u128::MAX.unbounded_shl(8 * (4 + text.len() as u32));
            assert_eq!(without_rest(dirty, text.len()), clean, "{text}");
            assert_eq!(is_ascii(clean), text.is_ascii(), "{text}");
        }
    }
}
