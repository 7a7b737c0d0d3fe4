//! Values as they stand behind the `?` of an address: `pid=4242&all=true`.

use std::fmt;

use serde::Serialize;
use serde::de::value::MapDeserializer;
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// The text is not of the kind that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAForm(String);

impl de::Error for NotAForm {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// The fields of a flat value; what is `None` is left out.
pub fn to_text(value: &impl Serialize) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(value) else {
        return String::new();
    };
    let mut pairs = Vec::new();
    for (name, value) in fields {
        let text = match value {
            serde_json::Value::Null => continue,
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        pairs.push(format!("{}={}", escaped(&name), escaped(&text)));
    }
    pairs.join("&")
}

/// A value from its fields. A name that stands twice is refused.
pub fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, NotAForm> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((plain(name)?, Field(plain(value)?)))
    });
    let pairs: Vec<(String, Field)> = pairs.collect::<Result<_, NotAForm>>()?;
    for (index, (name, _)) in pairs.iter().enumerate() {
        if pairs[..index].iter().any(|(before, _)| before == name) {
            return Err(NotAForm(format!("twice: {name}")));
        }
    }
    T::deserialize(MapDeserializer::new(pairs.into_iter()))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn plain(text: &str) -> Result<String, NotAForm> {
    let wrong = || NotAForm(format!("wrongly escaped: {text}"));
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, more @ ..] = rest {
        rest = more;
        match (first, more) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, more @ ..]) => {
                let digit = |digit: u8| char::from(digit).to_digit(16).ok_or_else(wrong);
                bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
                rest = more;
            }
            (b'%', _) => return Err(wrong()),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).map_err(|_other| wrong())
}

/// One value, which is what it is asked to be.
struct Field(String);

impl IntoDeserializer<'_, NotAForm> for Field {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($method:ident => $visit:ident: $kind:ty),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotAForm> {
            let wrong = |_| NotAForm(format!("not of its kind ({}): {}", stringify!($kind), self.0));
            visitor.$visit(self.0.parse::<$kind>().map_err(wrong)?)
        })*
    };
}

impl<'de> Deserializer<'de> for Field {
    type Error = NotAForm;

    parsed! {
        deserialize_bool => visit_bool: bool,
        deserialize_u8 => visit_u8: u8,
        deserialize_u16 => visit_u16: u16,
        deserialize_u32 => visit_u32: u32,
        deserialize_u64 => visit_u64: u64,
        deserialize_i32 => visit_i32: i32,
        deserialize_i64 => visit_i64: i64,
        deserialize_f64 => visit_f64: f64,
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotAForm> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotAForm> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, NotAForm> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u128 f32 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct enum
        identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::agent::{RelayRequest, SamplesRequest, StacksRequest};
    use crate::process::Pid;

    proptest! {
        #[test]
        fn a_form_says_what_was_meant(thread in ".{0,20}", pid: u32, all: bool, seconds in 0.0..1e6) {
            let stacks = StacksRequest { thread: Some(thread.clone()), pid: Some(Pid(pid)), all, ..Default::default() };
            prop_assert_eq!(from_text::<StacksRequest>(&to_text(&stacks)), Ok(stacks));
            let samples = SamplesRequest {
                pid: Pid(pid), seconds, rate: 7, thread: None, idle: all, threads: false, functions: true, pause: false,
            };
            prop_assert_eq!(from_text::<SamplesRequest>(&to_text(&samples)), Ok(samples));
        }

        #[test]
        fn no_text_makes_it_fail(text in ".{0,60}") {
            drop(from_text::<StacksRequest>(&text));
        }
    }

    #[test]
    fn what_is_not_meant_so_is_refused() {
        let relay = |text: &str| from_text::<RelayRequest>(text).map(|relay| relay.pid.0);
        assert_eq!(relay("pid=7"), Ok(7));
        assert_eq!(relay("pid=%37&"), Ok(7));
        for wrong in [
            "",
            "pid=",
            "pid=x",
            "pid=-1",
            "pid=7&pid=8",
            "pid=7&x=1",
            "pid=7&attach=1",
            "pid=%3",
            "pid=%ff",
        ] {
            assert!(relay(wrong).is_err(), "{wrong}");
        }
    }
}
