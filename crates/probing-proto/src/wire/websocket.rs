//! Frames over a WebSocket: a message without bytes is a text, its JSON; one with bytes is binary, its frame.

use crate::message::RequestId;
use crate::wire::{Decoder, Frame};

/// What a WebSocket carries of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    Text(String),
    Binary(Vec<u8>),
}

impl Packet {
    /// The frame in it, of at most `limit` bytes; none when it is not a whole one and nothing else.
    pub fn into_frame(self, limit: usize) -> Option<Frame> {
        match self {
            Self::Text(json) => Some(Frame {
                json: json.into_bytes(),
                payload: Vec::new(),
            }),
            Self::Binary(bytes) => {
                let mut decoder = Decoder::new(limit);
                decoder.push(&bytes);
                let frame = decoder.next_frame().ok().flatten()?;
                decoder.into_rest().is_empty().then_some(frame)
            }
        }
    }
}

impl From<Frame> for Packet {
    fn from(frame: Frame) -> Self {
        let as_it_is = |frame: &Frame| Self::Binary(frame.to_bytes(usize::MAX).unwrap_or_default());
        if !frame.payload.is_empty() {
            return as_it_is(&frame);
        }
        match String::from_utf8(frame.json) {
            Ok(json) => Self::Text(json),
            Err(error) => as_it_is(&Frame {
                json: error.into_bytes(),
                ..frame
            }),
        }
    }
}

/// The id of a request that is not understood otherwise.
pub fn id_in(frame: &Frame) -> Option<RequestId> {
    let value: serde_json::Value = frame.message().ok()?;
    value.get("id")?.as_u64().map(RequestId)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_frame_comes_out_as_it_went_in(
            json in prop::collection::vec(any::<u8>(), 0..40),
            payload in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let frame = Frame { json, payload };
            let packet = Packet::from(frame.clone());
            prop_assert_eq!(packet.into_frame(80), Some(frame));
        }

        #[test]
        fn no_bytes_make_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            drop(Packet::Binary(bytes).into_frame(40));
        }
    }

    #[test]
    fn half_a_frame_and_one_and_a_half_are_none() {
        let frame = Frame {
            json: b"{}".to_vec(),
            payload: vec![1],
        };
        let bytes = frame.to_bytes(10).unwrap();
        assert_eq!(Packet::Binary(bytes[..10].to_vec()).into_frame(10), None);
        let more = [bytes.as_slice(), &[0]].concat();
        assert_eq!(Packet::Binary(more).into_frame(10), None);
        assert_eq!(Packet::Binary(bytes.clone()).into_frame(2), None);
        assert_eq!(Packet::Binary(bytes).into_frame(10), Some(frame));
    }
}
