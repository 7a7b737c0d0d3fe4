//! Moments as text.

/// UTC, from nanoseconds since 1970: `2026-11-15T23:52:23.123Z`
pub fn utc(nanos: u64) -> String {
    let (seconds, millis) = (nanos / 1_000_000_000, nanos / 1_000_000 % 1000);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    // Years that begin in March have their odd day at the end; 400 of them have always the same number of days.
    let days = seconds / 86400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era * 400 + year + carry;
    let second = seconds % 60;
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_as_everywhere() {
        let check = |seconds: u64, text| assert_eq!(utc(seconds * 1_000_000_000), text);
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_400, "2000-02-29T00:00:00.000Z");
        check(951_868_799, "2000-02-29T23:59:59.000Z");
        check(1_704_067_199, "2023-12-31T23:59:59.000Z");
        check(1_709_251_200, "2024-03-01T00:00:00.000Z");
        check(4_107_542_400, "2100-03-01T00:00:00.000Z");
        assert_eq!(utc(1_234_567_890), "1970-01-01T00:00:01.234Z");
    }
}
