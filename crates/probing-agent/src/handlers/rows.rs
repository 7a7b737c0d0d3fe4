//! `/query`: rows by SQL.
//!
//! The query runs here, bounded in time and memory, and never in a target.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::http::json::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Bytes, Frame};
use probing_client::Members;
use probing_engine::{EngineError, Format, ResultStream, Summary, UnreadTarget, missing_targets};
use probing_proto::agent::{
    ARROW_STREAM, END_TRAILER, QueryEnd, QueryReport, QueryRequest, Refusal, RefusalKind,
};
use probing_proto::message::Failure;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use crate::agent::Agent;
use crate::handlers::{failed, in_turn};
use crate::http::refusal::Refused;
use crate::http::request::{Caller, JsonBody};
use crate::target_selection::RequestedTargets;

/// An answer in JSON is made whole before it is sent.
const MAX_ROWS: usize = 100_000;
/// A stream is sent in pieces of this size, of which so many wait for who takes them.
const PIECE: usize = 64 << 10;
const AHEAD: usize = 2;

pub(crate) async fn rows(
    State(agent): State<Arc<Agent>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<QueryRequest>,
) -> Result<Response, Refused> {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let is_stream = accept.is_some_and(|accept| accept.contains(ARROW_STREAM));
    agent.note(&caller.actor, "query", request.pid, Some(&request.sql))?;
    if !is_stream {
        return in_turn(agent, caller, move |agent, _| table(agent, &request)).await;
    }
    let turn = agent.turn(caller.role).await?;
    let (begun, begins) = oneshot::channel();
    let (sender, receiver) = mpsc::channel(AHEAD);
    spawn_blocking(move || {
        let _turn = turn;
        stream(&agent, &request, begun, sender);
    });
    begins.await.map_err(|error| failed(&error))??;
    let fields = [
        (header::CONTENT_TYPE, ARROW_STREAM),
        (header::TRAILER, END_TRAILER),
    ];
    let pieces = Pieces {
        receiver,
        ended: false,
    };
    Ok((fields, Body::new(pieces)).into_response())
}

fn ask(agent: &Agent, request: &QueryRequest) -> Result<(ResultStream, Members), Refused> {
    let choice = RequestedTargets {
        rank: request.rank,
        ranks: request.ranks.as_deref(),
        pid: request.pid,
        pids: &request.pids,
    };
    let members = choice.members()?;
    let answer = agent
        .engine()
        .and_then(|engine| engine.blocking_ask(&request.sql, &members, &agent.terms()));
    Ok((answer.map_err(|error| refused(&error))?, members))
}

/// All rows at once.
fn table(agent: &Agent, request: &QueryRequest) -> Result<Response, Refused> {
    let (answer, members) = ask(agent, request)?;
    let told = answer.into_json(MAX_ROWS);
    let (table, summary) = told.map_err(|error| refused(&error))?;
    let report = QueryReport {
        columns: table.columns,
        rows: table.rows,
        end: end(&summary, &members),
    };
    Ok(Json(report).into_response())
}

/// Rows as they come, and behind them what is known only then.
fn stream(
    agent: &Agent,
    request: &QueryRequest,
    begun: oneshot::Sender<Result<(), Refused>>,
    sender: mpsc::Sender<Frame<Bytes>>,
) {
    let (answer, members) = match ask(agent, request) {
        Ok(asked) => asked,
        Err(refused) => {
            // Whoever asked may have gone.
            begun.send(Err(refused)).ok();
            return;
        }
    };
    if begun.send(Ok(())).is_err() {
        return;
    }
    let mut out = BufWriter::with_capacity(PIECE, Sink(&sender));
    let written = answer.write(Format::Arrow, &mut out);
    drop(out);
    let end = match written {
        Ok(summary) => end(&summary, &members),
        // Nobody is there to be told.
        Err(EngineError::NotWritten { .. }) => return,
        Err(error) => QueryEnd {
            took_seconds: 0.0,
            missing: missing_targets(lacking(&error), &members),
            refusal: Some(refused(&error).refusal),
        },
    };
    let end = in_ascii(&serde_json::to_string(&end).unwrap_or_default());
    if let (Ok(name), Ok(end)) = (
        END_TRAILER.parse::<HeaderName>(),
        HeaderValue::from_str(&end),
    ) {
        let trailer = HeaderMap::from_iter([(name, end)]);
        sender.blocking_send(Frame::trailers(trailer)).ok();
    }
}

/// Where pieces are put; waits until one is taken.
struct Sink<'a>(&'a mpsc::Sender<Frame<Bytes>>);

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Frame::data(Bytes::copy_from_slice(bytes));
        let sent = self.0.blocking_send(piece);
        sent.map_err(|_gone| io::Error::from(ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where they are taken.
struct Pieces {
    receiver: mpsc::Receiver<Frame<Bytes>>,
    ended: bool,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.receiver.poll_recv(context).map(|piece| match piece {
            Some(piece) => {
                self.ended = piece.is_trailers();
                Some(Ok(piece))
            }
            None if self.ended => None,
            // Half an answer must not look like a whole one.
            None => Some(Err(ErrorKind::UnexpectedEof.into())),
        })
    }
}

fn refused(error: &EngineError) -> Refused {
    let (status, kind) = match error {
        error if error.is_syntax() => (StatusCode::BAD_REQUEST, Some(RefusalKind::Syntax)),
        EngineError::Blind { .. } => (StatusCode::BAD_GATEWAY, Some(RefusalKind::Blind)),
        EngineError::TooLong { .. } => (StatusCode::GATEWAY_TIMEOUT, None),
        EngineError::NotStarted { .. } => (StatusCode::SERVICE_UNAVAILABLE, None),
        _ => (StatusCode::BAD_REQUEST, None),
    };
    let mut refused = Refused::new(status, error.to_string());
    refused.refusal = Refusal {
        failure: Failure {
            error: error.to_string(),
            hint: error.hint(),
        },
        kind,
    };
    refused
}

fn end(summary: &Summary, members: &Members) -> QueryEnd {
    QueryEnd {
        took_seconds: summary.took.as_secs_f64(),
        missing: missing_targets(&summary.missing, members),
        refusal: None,
    }
}

fn lacking(error: &EngineError) -> &[UnreadTarget] {
    match error {
        EngineError::Blind { missing } => missing,
        _ => &[],
    }
}

/// A header field is plain.
fn in_ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter.is_ascii() {
            text.push(letter);
            continue;
        }
        let mut units = [0; 2];
        for unit in letter.encode_utf16(&mut units) {
            text.push_str(&format!("\\u{unit:04x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_is_ascii_and_means_the_same() {
        let text = serde_json::to_string("é 🦀 \" \n").unwrap();
        let plain = in_ascii(&text);
        assert!(plain.is_ascii());
        assert_eq!(
            serde_json::from_str::<String>(&plain).unwrap(),
            "é 🦀 \" \n"
        );
    }
}
