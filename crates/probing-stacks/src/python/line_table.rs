//! Finds the line of an instruction in a code object's line table.

/// What a table says about an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineLookup {
    Line(u32),
    /// An instruction that belongs to no line.
    NoLine,
    /// The table does not reach so far, or is damaged.
    Beyond,
}

impl LineLookup {
    pub(crate) fn line(self) -> Option<u32> {
        match self {
            Self::Line(line) => Some(line),
            Self::NoLine | Self::Beyond => None,
        }
    }
}

/// `co_linetable` of 3.10: pairs of (length in bytes, signed line delta; -128 for no line).
pub(crate) fn of_3_10(table: &[u8], first_line: u32, offset: u64) -> LineLookup {
    let (mut line, mut end) = (i64::from(first_line), 0);
    for pair in table.chunks_exact(2) {
        end += u64::from(pair[0]);
        let delta = i64::from(pair[1].cast_signed());
        if delta != -128 {
            line += delta;
        }
        if offset < end {
            return if delta == -128 {
                LineLookup::NoLine
            } else {
                as_line(line)
            };
        }
    }
    LineLookup::Beyond
}

/// `co_linetable` from 3.11 on (its description is Objects/locations.md in CPython).
///
/// Each entry starts with a byte that has its highest bit set: 4 bits of kind, 3 bits of length - 1 in code units of
/// two bytes. Then come the line delta and columns in bytes whose highest bit is not set.
pub(crate) fn of_3_11(table: &[u8], first_line: u32, offset: u64) -> LineLookup {
    let (mut line, mut end) = (i64::from(first_line), 0);
    let mut bytes = table.iter().copied().peekable();
    while let Some(head) = bytes.next() {
        let kind = (head >> 3) & 0xf;
        end += 2 * (u64::from(head & 7) + 1);
        line += match kind {
            // No columns, or all of them spelled out.
            13 | 14 => signed(&mut bytes),
            10..=12 => i64::from(kind) - 10,
            _ => 0,
        };
        if offset < end {
            return if kind == 15 {
                LineLookup::NoLine
            } else {
                as_line(line)
            };
        }
        while bytes.next_if(|byte| byte & 0x80 == 0).is_some() {}
    }
    LineLookup::Beyond
}

fn as_line(line: i64) -> LineLookup {
    u32::try_from(line).map_or(LineLookup::Beyond, LineLookup::Line)
}

/// Six bits in each byte, the lowest first; bit 6 says that more follow; the lowest bit of all is the sign.
fn signed(bytes: &mut std::iter::Peekable<impl Iterator<Item = u8>>) -> i64 {
    let (mut value, mut shift) = (0i64, 0);
    while let Some(byte) = bytes.next_if(|byte| byte & 0x80 == 0) {
        if shift < 36 {
            value |= i64::from(byte & 0x3f) << shift;
        }
        shift += 6;
        if byte & 0x40 == 0 {
            break;
        }
    }
    if value & 1 == 0 {
        value >> 1
    } else {
        -(value >> 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_older_table_is_read() {
        let table = [2, 1, 4, 2, 2, 0x80, 4, 0xff];
        let line = |offset| of_3_10(&table, 10, offset);
        assert_eq!(line(0), LineLookup::Line(11));
        assert_eq!(line(2), LineLookup::Line(13));
        assert_eq!(line(6), LineLookup::NoLine);
        assert_eq!(line(8), LineLookup::Line(12));
        assert_eq!(line(12), LineLookup::Beyond);
    }

    #[test]
    fn the_newer_table_is_read() {
        // RESUME of line 1 with all columns; one line further; two back without columns; nothing.
        let table = [0xf0, 2, 0, 1, 0, 0xd9, 0, 9, 0xe8, 5, 0xf8];
        let line = |offset| of_3_11(&table, 4, offset);
        assert_eq!(line(0), LineLookup::Line(5));
        assert_eq!(line(2), LineLookup::Line(6));
        assert_eq!(line(5), LineLookup::Line(6));
        assert_eq!(line(6), LineLookup::Line(4));
        assert_eq!(line(8), LineLookup::NoLine);
        assert_eq!(line(10), LineLookup::Beyond);
    }

    proptest! {
        #[test]
        fn any_table_is_survived(table in prop::collection::vec(any::<u8>(), 0..300), first: u32, offset: u64) {
            of_3_10(&table, first, offset % 4096);
            of_3_11(&table, first, offset % 4096);
            of_3_11(&table, first, offset);
        }
    }
}
