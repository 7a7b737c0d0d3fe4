//! Refusals of requests: a status, and JSON with an error and a hint.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use probing_proto::agent::{Refusal, RefusalKind};
use probing_proto::message::Failure;

use crate::http::json::{self, Json};

/// What every answer says to who might keep or reinterpret it.
pub(crate) const CAUTION: [(HeaderName, HeaderValue); 2] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
];

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) refusal: Refusal,
    /// More fields for the answer.
    fields: Vec<(HeaderName, String)>,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            refusal: Refusal {
                failure: Failure::new(error),
                kind: None,
            },
            fields: Vec::new(),
        }
    }

    /// The request itself is wrong.
    pub(crate) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
            .hint("docs/remote.md lists the requests; GET /openapi.json describes them")
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.refusal.failure.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub(crate) fn kind(mut self, kind: RefusalKind) -> Self {
        self.refusal.kind = Some(kind);
        self
    }

    #[must_use]
    pub(crate) fn field(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// As a whole answer, for who has not even been read.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let json = json::text(&self.refusal).unwrap_or_default().into_bytes();
        let mut head = format!("HTTP/1.1 {}\r\n", self.status);
        for (name, value) in CAUTION {
            let value = value.to_str().unwrap_or_default().to_owned();
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let length = json.len();
        head.push_str(&format!(
            "Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        ));
        [head.into_bytes(), json].concat()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.refusal)).into_response();
        for (name, value) in self.fields {
            // Ours are numbers and names of methods.
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}
