//! `/samples`: many readings of one target, counted.

use std::time::Duration;

use crate::http::json::Json;
use axum::response::{IntoResponse as _, Response};
use probing_client::{Pause, Plan, Stop};
use probing_proto::agent::SamplesRequest;

use crate::agent::Agent;
use crate::http::refusal::Refused;
use crate::http::request::Caller;
use crate::target_selection::{self, RequestedTargets};

/// Longer ones are asked for in pieces.
const MAX_SECONDS: f64 = 60.0;
const MAX_RATE: u32 = 10_000;

pub(crate) fn samples(_: &Agent, _: &Caller, request: SamplesRequest) -> Result<Response, Refused> {
    let is_time = (0.0..=MAX_SECONDS).contains(&request.seconds);
    if !is_time || !(1..=MAX_RATE).contains(&request.rate) {
        return Err(Refused::bad(format!(
            "seconds is from 0 to {MAX_SECONDS}, rate from 1 to {MAX_RATE}"
        )));
    }
    let choice = RequestedTargets {
        pid: Some(request.pid),
        ..RequestedTargets::default()
    };
    let members = choice.members()?;
    let plan = Plan {
        duration: Duration::try_from_secs_f64(request.seconds).unwrap_or_default(),
        rate: request.rate,
        thread: request.thread,
        idle: request.idle,
        threads: request.threads,
        functions: request.functions,
        pause: Pause::when_moving(request.pause),
    };
    let Some(member) = members.all.first() else {
        return Err(target_selection::no_target(request.pid));
    };
    let sampled = member.target.sample(&plan, &Stop::default(), |_| {});
    let sampled = sampled.map_err(|error| target_selection::refused(&error))?;
    Ok(Json(sampled.report()).into_response())
}
