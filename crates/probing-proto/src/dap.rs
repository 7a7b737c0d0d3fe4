//! Messages of the Debug Adapter Protocol, as far as `probing dap` speaks it.
//!
//! Fields and requests that are not here are ignored, as the protocol asks. Names are those of the protocol:
//! <https://microsoft.github.io/debug-adapter-protocol/specification>.

pub mod arguments;
pub mod body;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a client sends. Only requests are of use: the adapter asks nothing that is answered.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ClientMessage {
    #[serde(default)]
    pub seq: i64,
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub command: String,
    #[serde(default)]
    pub arguments: Value,
}

impl ClientMessage {
    pub fn is_request(&self) -> bool {
        self.kind == "request"
    }
}

/// What the adapter sends, numbered from 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdapterMessage {
    pub seq: i64,
    #[serde(flatten)]
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    Response(Response),
    Event(Event),
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Response {
    pub request_seq: i64,
    pub success: bool,
    pub command: String,
    /// Why it failed, in short: `cancelled`, or a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// What happened, unasked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    pub event: &'static str,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub body: Value,
}
