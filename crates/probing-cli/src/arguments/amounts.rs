//! Times and sizes as people write them

use std::time::Duration;

/// More than none.
pub(super) fn some_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("must be more than nothing".to_owned()),
        some => Ok(some),
    }
}

/// `2`, `2s`, `500ms`, `1.5m`, `1h`
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (digits, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .unwrap_or((text, 1.0));
    let number: f64 = digits
        .parse()
        .map_err(|error| format!("not a number of seconds: {error}"))?;
    Duration::try_from_secs_f64(number * unit).map_err(|error| error.to_string())
}

/// `500`, `64K`, `10M`
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number: u64 = digits
        .parse()
        .map_err(|error| format!("not a number of bytes: {error}"))?;
    number
        .checked_mul(unit)
        .ok_or_else(|| "not so many".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_bytes_may_have_a_unit() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("64k"), Ok(64 << 10));
        assert_eq!(bytes("10M"), Ok(10 << 20));
        for wrong in [
            "",
            "M",
            "-1",
            "1.5M",
            "10T",
            "99999999999999999999",
            "99999999999999999M",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_may_have_a_unit() {
        let check =
            |text: &str, millis| assert_eq!(seconds(text), Ok(Duration::from_millis(millis)));
        check("2", 2000);
        check("2s", 2000);
        check("500ms", 500);
        check("1.5m", 90_000);
        check("1h", 3_600_000);
        for wrong in ["", "s", "-1s", "2d", "1 s s", "nan", "inf"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
