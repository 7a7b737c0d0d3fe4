//! `int` and `float`, and how Python writes them.

use std::fmt::Write as _;

use crate::memory::u32_at;
use crate::python::objects::{Gap, ReadResult, Type, View};

/// Digits of 30 bits, the least first. Of larger numbers only the size is told.
const MAX_DIGITS: usize = 128;
const DIGIT_BITS: u32 = 30;
/// As many as a machine's number holds.
const FEW_DIGITS: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Integer {
    /// As a machine has it.
    Small(i128),
    /// In decimal.
    Written(String),
    /// Too large to be written; about how many bits it has.
    Bits(u64),
}

impl View<'_> {
    /// The value of an `int`, a `bool`, or what derives from them.
    pub(crate) fn integer(&self, object: u64) -> ReadResult<Integer> {
        self.is(object, Type::INT)?;
        self.known_integer(object)
    }

    /// The value of what is known to be one.
    pub(crate) fn known_integer(&self, object: u64) -> ReadResult<Integer> {
        let builtins = &self.interpreter.layout.builtins;
        let size = self.word(object, builtins.int_size)?;
        let (count, negative) = if self.interpreter.layout.version.1 <= 11 {
            let size = size.cast_signed();
            (size.unsigned_abs(), size < 0)
        } else {
            let count = if size & 3 == 1 { 0 } else { size >> 3 };
            (count, size & 3 == 2)
        };
        if count > u64::from(u32::MAX) {
            return Err(Gap::Wrong);
        }
        let count = count as usize;
        if count > MAX_DIGITS {
            return Ok(Integer::Bits(count as u64 * u64::from(DIGIT_BITS)));
        }
        let at = object.checked_add(builtins.int_digits as u64);
        let bytes = self.bytes(at.ok_or(Gap::Wrong)?, count * 4)?;
        let digits = (0..count).map(|n| u32_at(&bytes, n * 4).unwrap_or(u32::MAX));
        if digits.clone().any(|digit| digit >> DIGIT_BITS != 0) {
            return Err(Gap::Wrong);
        }
        if count <= FEW_DIGITS {
            let add = |value, digit| value << DIGIT_BITS | i128::from(digit);
            let value = digits.rev().fold(0, add);
            return Ok(Integer::Small(if negative { -value } else { value }));
        }
        let sign = if negative { "-" } else { "" };
        let value = decimal(digits.collect());
        Ok(Integer::Written(format!("{sign}{value}")))
    }

    pub(crate) fn float(&self, object: u64) -> ReadResult<f64> {
        let at = self.interpreter.layout.builtins.float_value;
        Ok(f64::from_bits(self.word(object, at)?))
    }
}

fn decimal(mut digits: Vec<u32>) -> String {
    const STEP: u64 = 1_000_000_000;
    let mut groups: Vec<u32> = Vec::new();
    while digits.last() == Some(&0) {
        digits.pop();
    }
    while !digits.is_empty() {
        let mut rest = 0;
        for digit in digits.iter_mut().rev() {
            let value = rest << DIGIT_BITS | u64::from(*digit);
            *digit = (value / STEP) as u32;
            rest = value % STEP;
        }
        groups.push(rest as u32);
        while digits.last() == Some(&0) {
            digits.pop();
        }
    }
    let first = groups.pop().unwrap_or(0).to_string();
    let rest = groups.iter().rev().map(|group| format!("{group:09}"));
    std::iter::once(first).chain(rest).collect()
}

/// As `repr` writes a float: the shortest digits that give it back.
pub(crate) fn push_float(text: &mut String, value: f64) {
    if value.is_nan() {
        text.push_str("nan");
        return;
    }
    let start = text.len();
    // Writing to a String does not fail. Rust and Python agree on when there is an exponent, but not on its form.
    _ = write!(text, "{value:?}");
    let Some(at) = text[start..].find('e') else {
        return;
    };
    let exponent = text.split_off(start + at + 1);
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', &*exponent),
    };
    _ = write!(text, "{sign}{digits:0>2}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_by_python() {
        let check = |value: f64, text: &str| {
            let mut written = "x = ".to_owned();
            push_float(&mut written, value);
            assert_eq!(written.strip_prefix("x = "), Some(text));
        };
        check(0.0, "0.0");
        check(-0.0, "-0.0");
        check(1e15, "1000000000000000.0");
        check(1e16, "1e+16");
        check(1.5e300, "1.5e+300");
        check(0.0001, "0.0001");
        check(0.00001, "1e-05");
        check(0.000_123_4, "0.0001234");
        check(0.000_099_9, "9.99e-05");
        check(9_999_999_999_999_998.0, "9999999999999998.0");
        check(-1.25e-7, "-1.25e-07");
        check(5e-324, "5e-324");
        check(0.1 + 0.2, "0.30000000000000004");
        check(123_456_789.123, "123456789.123");
        check(f64::NEG_INFINITY, "-inf");
        check(f64::NAN, "nan");
    }

    #[test]
    fn integers_are_written_in_decimal() {
        assert_eq!(decimal(vec![]), "0");
        assert_eq!(decimal(vec![7]), "7");
        assert_eq!(decimal(vec![0, 1]), "1073741824");
        assert_eq!(
            decimal(vec![0, 0, 0, 1024]),
            "1267650600228229401496703205376"
        );
        assert_eq!(decimal(vec![1_000_000_000]), "1000000000");
    }
}
