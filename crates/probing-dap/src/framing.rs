//! Messages on a byte stream: a header with `Content-Length`, an empty line, that many bytes of JSON.
//!
//! No IO: bytes are pushed as they come, in pieces of any size, and whole messages are taken.

/// Longest header: no client sends more than two lines.
const MAX_HEADER: usize = 8 << 10;
/// Longest message: an expression with a file pasted into it fits.
const MAX_MESSAGE: usize = 16 << 20;
const HEADER_END: &[u8] = b"\r\n\r\n";
const LENGTH: &str = "content-length";

/// The bytes are no messages; nothing after them can be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FramingError {
    #[error("header of more than {MAX_HEADER} bytes")]
    LongHeader,
    #[error("header without a length of the message: {header}")]
    NoLength { header: String },
    #[error("message of {length} bytes is longer than the limit of {MAX_MESSAGE}")]
    LongMessage { length: usize },
}

/// Collects bytes and gives back the content of whole messages.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    /// So many were searched for the end of the header.
    searched: usize,
}

impl Decoder {
    /// Takes bytes as they came.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message, `None` until more bytes arrive.
    pub(crate) fn next_message(&mut self) -> Result<Option<Vec<u8>>, FramingError> {
        let Some(header_len) = self.header_len() else {
            if self.bytes.len() > MAX_HEADER {
                return Err(FramingError::LongHeader);
            }
            return Ok(None);
        };
        if header_len > MAX_HEADER {
            return Err(FramingError::LongHeader);
        }
        let length = length_in(&self.bytes[..header_len])?;
        let begin = header_len + HEADER_END.len();
        let end = begin + length;
        if self.bytes.len() < end {
            return Ok(None);
        }
        let message = self.bytes[begin..end].to_vec();
        self.bytes.drain(..end);
        self.searched = 0;
        // One large message does not keep its memory for the life of the session.
        self.bytes.shrink_to(64 << 10);
        Ok(Some(message))
    }

    fn header_len(&mut self) -> Option<usize> {
        let from = self.searched.saturating_sub(HEADER_END.len() - 1);
        let found = self.bytes[from..]
            .windows(HEADER_END.len())
            .position(|window| window == HEADER_END);
        let end = found.map(|at| from + at);
        // Found again at once when the rest of the message arrives.
        self.searched = end.unwrap_or(self.bytes.len());
        end
    }
}

fn length_in(header: &[u8]) -> Result<usize, FramingError> {
    let text = String::from_utf8_lossy(header);
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let length = fields
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case(LENGTH))
        .find_map(|(_, value)| {
            let digits = value.trim();
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            // What is no number of this machine is too long.
            is_number.then(|| digits.parse().unwrap_or(usize::MAX))
        });
    match length {
        Some(length) if length > MAX_MESSAGE => Err(FramingError::LongMessage { length }),
        Some(length) => Ok(length),
        None => Err(FramingError::NoLength {
            header: text.chars().take(80).collect(),
        }),
    }
}

/// A message as bytes, for one write.
pub(crate) fn encode(json: &[u8]) -> Vec<u8> {
    let mut bytes = format!("Content-Length: {}\r\n\r\n", json.len()).into_bytes();
    bytes.extend_from_slice(json);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn decoded(pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, FramingError> {
        let (mut decoder, mut messages) = (Decoder::default(), Vec::new());
        for piece in pieces {
            decoder.push(piece);
            while let Some(message) = decoder.next_message()? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    #[test]
    fn a_header_may_be_written_in_any_way() {
        for header in [
            "Content-Length: 2\r\n\r\n",
            "content-length:2\r\n\r\n",
            "Content-Type: application/json\r\nCONTENT-LENGTH :  2 \r\n\r\n",
        ] {
            let bytes = [header.as_bytes(), b"{}"].concat();
            assert_eq!(decoded(&[&bytes]), Ok(vec![b"{}".to_vec()]), "{header:?}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let refused = |bytes: &[u8]| decoded(&[bytes]).unwrap_err();
        for header in [
            "GET / HTTP/1.1",
            "Content-Length: x",
            "Content-Length: -1",
            "",
        ] {
            let bytes = format!("{header}\r\n\r\n");
            let header = header.to_owned();
            assert_eq!(refused(bytes.as_bytes()), FramingError::NoLength { header });
        }
        let length = MAX_MESSAGE + 1;
        let long = format!("Content-Length: {length}\r\n\r\n");
        assert_eq!(
            refused(long.as_bytes()),
            FramingError::LongMessage { length }
        );
        let longer = b"Content-Length: 99999999999999999999999\r\n\r\n";
        let length = usize::MAX;
        assert_eq!(refused(longer), FramingError::LongMessage { length });
        assert_eq!(refused(&[b'x'; MAX_HEADER + 1]), FramingError::LongHeader);
    }

    proptest! {
        #[test]
        fn messages_come_through_whatever_pieces_they_arrive_in(
            messages in vec(vec(any::<u8>(), 0..200), 0..6),
            cuts in vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|message| encode(message)).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(decoded(&pieces), Ok(messages));
        }

        #[test]
        fn any_bytes_are_messages_or_refused(bytes in vec(any::<u8>(), 0..2000)) {
            let whole = decoded(&[&bytes]);
            let one_by_one: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(whole.is_ok(), decoded(&one_by_one).is_ok());
        }
    }
}
