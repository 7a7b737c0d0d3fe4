//! The parts of a request, and the checks before it is handled.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use probing_client::ChannelBinding;
use probing_proto::agent::Role;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::agent::Agent;
use crate::http::refusal::Refused;
use crate::http::requester::Requester;
use crate::security::audit_log::Actor;
use crate::security::capacity::ConnectionSlot;

/// Longest head of a request.
pub(crate) const MAX_HEAD_BYTES: usize = 16 << 10;
pub(crate) const MAX_HEADER_FIELDS: usize = 64;
/// Longest body.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;
/// For a head to arrive; and for a body.
pub(crate) const ARRIVAL: Duration = Duration::from_secs(5);

/// Who is at the other end of a connection, and its place among the connections.
#[derive(Debug, Clone)]
pub(crate) struct ClientConnection {
    pub(crate) visitor: Visitor,
    /// What a proof of the token is bound to; none without TLS.
    pub(crate) binding: Option<ChannelBinding>,
    /// Held as long as anybody answers it.
    pub(crate) entrance: Arc<ConnectionSlot>,
}

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visitor {
    Network(SocketAddr),
    /// The agent's own user on this machine, or root, over the socket in the private folder.
    Local {
        uid: u32,
    },
    /// Whoever has started the agent for itself, and has its input and output.
    Starter,
}

/// As the audit log calls it.
impl fmt::Display for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => address.fmt(f),
            Self::Local { uid } => write!(f, "local socket, uid {uid}"),
            Self::Starter => f.write_str("standard input"),
        }
    }
}

/// Somebody who may ask.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    pub(crate) actor: Actor,
    pub(crate) requester: Arc<Requester>,
}

/// What stands in a body, as JSON that says so.
pub(crate) struct JsonBody<T>(pub(crate) T);

/// What stands behind the `?`.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<Agent>> for JsonBody<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, agent: &Arc<Agent>) -> Result<Self, Refused> {
        let arrived = timeout(ARRIVAL, Json::from_request(request, agent)).await;
        let told = arrived.map_err(|_elapsed| late())?;
        told.map(|Json(told)| Self(told)).map_err(not_told)
    }
}

fn not_told(rejection: JsonRejection) -> Refused {
    match rejection {
        JsonRejection::MissingJsonContentType(_) => Refused::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a body must be application/json",
        )
        .hint("send it: `Content-Type: application/json`"),
        JsonRejection::BytesRejection(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            too_long()
        }
        error => Refused::bad(format!("the body is not understood: {}", reason(&error))),
    }
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let understood = Query::try_from_uri(&parts.uri);
        let Query(words) = understood.map_err(|error| {
            Refused::bad(format!("the query is not understood: {}", reason(&error)))
        })?;
        Ok(Self(words))
    }
}

/// Without what the library says around it.
fn reason(error: &dyn Error) -> String {
    error.source().unwrap_or(error).to_string()
}

/// The only field of this name: where there are two, somebody between may have read the other.
pub(crate) fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Refused> {
    let mut named = headers.get_all(&name).iter();
    let first = named.next();
    if named.next().is_some() {
        return Err(Refused::bad(format!("two fields of this name: {name}")));
    }
    let text = first.map(|value| value.to_str()).transpose();
    text.map_err(|_other| Refused::bad("a header field that is not text"))
}

/// A body has one length, which is said before it and is not too long.
pub(crate) fn check_length(headers: &HeaderMap) -> Result<(), Refused> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        let words = "a body needs Content-Length";
        return Err(
            Refused::new(StatusCode::LENGTH_REQUIRED, words).hint("send it with Content-Length")
        );
    }
    match only(headers, header::CONTENT_LENGTH)?.map(str::parse::<usize>) {
        Some(Ok(length)) if length <= MAX_BODY_BYTES => Ok(()),
        Some(_) => Err(too_long()),
        None => Ok(()),
    }
}

fn too_long() -> Refused {
    let words = format!("a body of more than {MAX_BODY_BYTES} bytes");
    Refused::new(StatusCode::PAYLOAD_TOO_LARGE, words)
        .hint("send less; code can read a file on the target's machine")
}

pub(crate) fn late() -> Refused {
    let seconds = ARRIVAL.as_secs();
    let words = format!("the request did not arrive within {seconds} s");
    Refused::new(StatusCode::REQUEST_TIMEOUT, words).hint("send it at once")
}
