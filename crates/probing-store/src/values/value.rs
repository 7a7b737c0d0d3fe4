//! One value of a row, on its way into a ring.

/// A value, which must be of its column's kind. Integers go into every integer column that can hold them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// None; the column must allow it.
    Null,
    Bool(bool),
    I64(i64),
    F64(f64),
    /// The number that [`crate::Writer::symbol`] gave.
    Symbol(u32),
    Bytes16([u8; 16]),
    Text(&'a str),
}
