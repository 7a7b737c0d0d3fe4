//! `/health`, `/targets`, `/openapi.json`: about the agent and its machine.

use axum::response::{IntoResponse as _, Response};
use probing_client::{Recording, roll};
use probing_proto::agent::{AGENT_PROTOCOL, Health, NodeReport, TargetsRequest};
use serde_json::Value;

use crate::agent::Agent;
use crate::http::json::Json;
use crate::http::openapi;
use crate::http::refusal::Refused;
use crate::http::request::Caller;

pub(crate) async fn health() -> Json<Health> {
    Json(Health {
        status: "ok".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: AGENT_PROTOCOL,
    })
}

#[expect(clippy::unnecessary_wraps, reason = "an answer like the others")]
pub(crate) fn targets(
    _: &Agent,
    caller: &Caller,
    request: TargetsRequest,
) -> Result<Response, Refused> {
    let system = rustix::system::uname();
    let report = NodeReport {
        host: system.nodename().to_string_lossy().into_owned(),
        role: caller.role,
        targets: roll(),
        dead: if request.dead {
            let dead = Recording::of_the_dead();
            dead.iter().map(Recording::report).collect()
        } else {
            Vec::new()
        },
    };
    Ok(Json(report).into_response())
}

pub(crate) async fn description() -> Json<Value> {
    Json(openapi::document())
}
