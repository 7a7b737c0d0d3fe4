//! Times and sizes as people write them.

use std::time::Duration;

pub(super) use probing_proto::text::byte_size::bytes;

/// A time that is not zero.
pub(super) fn some_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("must be more than zero".to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

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
