//! What is answered, each kind in its file.

mod backtrace;
mod eval;
mod node;
mod relay;
mod rows;
mod samples;

use std::sync::Arc;
use std::time::Duration;

use crate::http::json::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use probing_client::{ClientError, FanOutLimits, Member, Members, fan_out};
use serde::Serialize;
use tokio::task::spawn_blocking;

pub(crate) use self::backtrace::backtrace;
pub(crate) use self::eval::eval;
pub(crate) use self::node::{description, health, targets};
pub(crate) use self::relay::relay;
pub(crate) use self::rows::rows;
pub(crate) use self::samples::samples;

use crate::agent::Agent;
use crate::http::refusal::Refused;
use crate::http::request::Caller;
use crate::http::requester::Waiting;
use crate::target_selection;

/// For each target of a set.
pub(crate) const TARGET_TIMEOUT: Duration = Duration::from_secs(10);

/// What asks processes, and waits for them, for one value.
pub(crate) type BlockingHandler<T> = fn(&Agent, &Caller, T) -> Result<Response, Refused>;

/// Does what waits for processes where that keeps nobody else waiting, when it is its turn.
pub(crate) async fn in_turn<T: Send + 'static>(
    agent: Arc<Agent>,
    caller: Caller,
    work: impl FnOnce(&Agent, &Caller) -> Result<T, Refused> + Send + 'static,
) -> Result<T, Refused> {
    let _waiting = Waiting::of(&caller.requester);
    let turn = agent.turn(caller.role).await?;
    let done = spawn_blocking(move || {
        // It is not over when nobody waits for it any more.
        let _turn = turn;
        work(&agent, &caller)
    });
    done.await.unwrap_or_else(|error| Err(failed(&error)))
}

/// What is said when we fail ourselves.
fn failed(error: &impl ToString) -> Refused {
    Refused::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        .hint("this is a defect of the agent; the target was not touched by it")
}

/// The answer of each target with its report or its error; one that does not answer in time is named, and delays
/// nobody. The trouble of one that was named alone is a refusal.
fn each<R: Serialize + Send + 'static>(
    members: &Members,
    is_one: bool,
    manner: FanOutLimits,
    ask: impl Fn(&Member) -> Result<R, ClientError> + Send + Sync + 'static,
) -> Result<Response, Refused> {
    let patience = manner.timeout.unwrap_or_default();
    let answers = fan_out(&members.all, manner, ask).into_iter();
    let answers = answers.map(|answer| answer.unwrap_or(Err(ClientError::TooLong { patience })));
    let answers: Vec<Result<R, ClientError>> = answers.collect();
    if let (true, [Err(error)]) = (is_one, answers.as_slice()) {
        return Err(target_selection::refused(error));
    }
    let told = answers
        .into_iter()
        .map(|answer| answer.map_err(|error| error.to_string()));
    Ok(Json(members.report(told)).into_response())
}
