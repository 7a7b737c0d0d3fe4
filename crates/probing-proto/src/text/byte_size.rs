//! Numbers of bytes as people write them, on the command line and in variables.

/// `500`, `64K`, `10M`, `2G`
pub fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number: u64 = digits
        .parse()
        .map_err(|error| format!("not a number of bytes: {error}"))?;
    number
        .checked_mul(unit)
        .ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_bytes_may_have_a_unit() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("64k"), Ok(64 << 10));
        assert_eq!(bytes("10M"), Ok(10 << 20));
        assert_eq!(bytes("2G"), Ok(2 << 30));
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
}
