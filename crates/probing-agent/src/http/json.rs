//! Answers as JSON without control characters that a terminal would obey.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use probing_proto::text::visible;
use serde::Serialize;

/// The body of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match text(&self.0) {
            Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

pub(crate) fn text(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(visible::json)
}
