//! `int` and `float`, and how Python writes them.

use super::{Gap, Look, Type, View};

/// Digits of 30 bits, the least first. Of larger numbers only the size is told.
const MAX_DIGITS: usize = 128;
const DIGIT_BITS: u32 = 30;
/// As many as a machine's number holds.
const FEW_DIGITS: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Integer {
    /// In decimal.
    Written(String),
    /// Too large to be written; about how many bits it has.
    Bits(u64),
}

impl View<'_> {
    /// The value of an `int`, a `bool`, or what derives from them.
    pub(crate) fn integer(&self, object: u64) -> Look<Integer> {
        self.is(object, Type::INT)?;
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
        if count as usize > MAX_DIGITS {
            return Ok(Integer::Bits(count * u64::from(DIGIT_BITS)));
        }
        let at = object
            .checked_add(builtins.int_digits as u64)
            .ok_or(Gap::Wrong)?;
        let mut room = [0; MAX_DIGITS * 4];
        let bytes = &mut room[..count as usize * 4];
        self.copy(at, bytes)?;
        let digits = bytes.chunks_exact(4).map(|digit| {
            let low_first = digit.iter().rev();
            low_first.fold(0, |value, byte| value << 8 | u32::from(*byte))
        });
        if digits.clone().any(|digit| digit >> DIGIT_BITS != 0) {
            return Err(Gap::Wrong);
        }
        let sign = if negative { "-" } else { "" };
        if count as usize <= FEW_DIGITS {
            let add = |value, digit| value << DIGIT_BITS | u128::from(digit);
            let value: u128 = digits.rev().fold(0, add);
            return Ok(Integer::Written(format!("{sign}{value}")));
        }
        let value = decimal(digits.collect());
        Ok(Integer::Written(format!("{sign}{value}")))
    }

    pub(crate) fn float(&self, object: u64) -> Look<f64> {
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
pub(crate) fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let written = format!("{value:e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_by_python() {
        let check = |value: f64, text: &str| assert_eq!(float_text(value), text);
        check(0.0, "0.0");
        check(-0.0, "-0.0");
        check(1e15, "1000000000000000.0");
        check(1e16, "1e+16");
        check(1.5e300, "1.5e+300");
        check(0.0001, "0.0001");
        check(0.00001, "1e-05");
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
