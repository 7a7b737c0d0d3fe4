//! Frames: messages on a byte stream.
//!
//! No IO here; both ends feed bytes in and take frames out.
//!
//! A frame is `u32` length of the JSON, `u32` length of the binary payload (both little-endian), the JSON, the payload.

pub mod json_lines;
pub mod websocket;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest frame from a client, header apart: what it can make a target hold.
pub const MAX_REQUEST: usize = 8 << 20;
/// Longest frame from a probe: the longest texts of one message, every character of them escaped.
pub const MAX_ANSWER: usize = 64 << 20;
const HEADER: usize = 8;

/// A message as it travelled: JSON, and bytes that would be wasteful in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub json: Vec<u8>,
    pub payload: Vec<u8>,
}

/// What is wrong with the other end's bytes. The stream cannot be trusted after it.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("frame of {length} bytes is longer than the limit of {limit}")]
    TooLong { length: u64, limit: usize },
    #[error("message not understood: {source}")]
    NotUnderstood {
        #[source]
        source: serde_json::Error,
    },
}

/// A message as bytes of at most `limit`, ready for one write.
pub fn encode(
    message: &impl Serialize,
    payload: &[u8],
    limit: usize,
) -> Result<Vec<u8>, WireError> {
    let mut bytes = vec![0; HEADER];
    serde_json::to_writer(&mut bytes, message)
        .map_err(|source| WireError::NotUnderstood { source })?;
    let json_len = bytes.len() - HEADER;
    check_length(json_len as u64 + payload.len() as u64, limit)?;
    bytes[..4].copy_from_slice(&(json_len as u32).to_le_bytes());
    bytes[4..HEADER].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(payload);
    Ok(bytes)
}

impl Frame {
    /// As bytes of at most `limit`, ready for one write.
    pub fn to_bytes(&self, limit: usize) -> Result<Vec<u8>, WireError> {
        let Self { json, payload } = self;
        check_length(json.len() as u64 + payload.len() as u64, limit)?;
        let mut bytes = Vec::with_capacity(HEADER + json.len() + payload.len());
        bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(json);
        bytes.extend_from_slice(payload);
        Ok(bytes)
    }

    /// The message in it.
    pub fn message<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        serde_json::from_slice(&self.json).map_err(|source| WireError::NotUnderstood { source })
    }
}

/// Collects bytes as they arrive and gives back whole frames.
#[derive(Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    limit: usize,
}

impl Decoder {
    /// For a stream whose frames are at most `limit` bytes long.
    pub fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
        }
    }

    /// Takes bytes as they came, in pieces of any size.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, `None` until more bytes arrive.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        let Some((json_len, payload_len)) = self.lengths() else {
            return Ok(None);
        };
        check_length(json_len as u64 + payload_len as u64, self.limit)?;
        let payload_at = HEADER + json_len;
        let end = payload_at + payload_len;
        if self.bytes.len() < end {
            return Ok(None);
        }
        let frame = Frame {
            json: self.bytes[HEADER..payload_at].to_vec(),
            payload: self.bytes[payload_at..end].to_vec(),
        };
        self.bytes.drain(..end);
        // One large frame does not keep its memory for the life of the connection.
        self.bytes.shrink_to(64 << 10);
        Ok(Some(frame))
    }

    /// What was pushed and not taken as frames.
    pub fn into_rest(self) -> Vec<u8> {
        self.bytes
    }

    fn lengths(&self) -> Option<(usize, usize)> {
        let (json, rest) = self.bytes.split_first_chunk::<4>()?;
        let (payload, _) = rest.split_first_chunk::<4>()?;
        Some((
            u32::from_le_bytes(*json) as usize,
            u32::from_le_bytes(*payload) as usize,
        ))
    }
}

fn check_length(length: u64, limit: usize) -> Result<(), WireError> {
    if length > limit as u64 {
        return Err(WireError::TooLong { length, limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_survive_any_cutting(
            sent in prop::collection::vec((".{0,40}", prop::collection::vec(any::<u8>(), 0..40)), 0..6),
            cuts in prop::collection::vec(1usize..30, 1..40),
        ) {
            let stream: Vec<u8> = sent.iter().flat_map(|(text, payload)| encode(text, payload, MAX_REQUEST).unwrap()).collect();
            let mut decoder = Decoder::new(MAX_REQUEST);
            let mut received = Vec::new();
            let (mut rest, mut cuts) = (stream.as_slice(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, tail) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                decoder.push(piece);
                rest = tail;
                while let Some(frame) = decoder.next_frame().unwrap() {
                    let again = frame.to_bytes(MAX_REQUEST).unwrap();
                    let mut other = Decoder::new(MAX_REQUEST);
                    other.push(&again);
                    let twin = other.next_frame().unwrap();
                    prop_assert_eq!(twin.as_ref(), Some(&frame));
                    received.push((frame.message::<String>().unwrap(), frame.payload));
                }
            }
            prop_assert_eq!(received, sent);
        }

        #[test]
        fn hostile_bytes_give_an_error_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::new(MAX_REQUEST);
            decoder.push(&bytes);
            while let Ok(Some(frame)) = decoder.next_frame() {
                drop(frame.message::<crate::message::Request>());
                drop(frame.message::<crate::message::Message>());
            }
        }
    }

    #[test]
    fn a_huge_length_is_refused_before_anything_is_collected() {
        let mut decoder = Decoder::new(MAX_REQUEST);
        decoder.push(&[0xff; 8]);
        assert!(matches!(
            decoder.next_frame(),
            Err(WireError::TooLong { .. })
        ));
        assert!(matches!(
            encode(&"", &vec![0; MAX_REQUEST + 1], MAX_REQUEST),
            Err(WireError::TooLong { .. })
        ));
    }
}
