//! `/samples`: many readings of one target, counted.

use std::time::Duration;

use crate::json::Json;
use axum::response::{IntoResponse as _, Response};
use probing_client::{Pause, Plan, Stop};
use probing_proto::agent::SamplesRequest;

use crate::choice::{self, Choice};
use crate::life::Agent;
use crate::refusal::Refused;
use crate::request::Caller;

/// Longer ones are asked for in pieces.
const LONGEST: f64 = 60.0;
const MOST_RATE: u32 = 10_000;

pub(crate) fn samples(_: &Agent, _: &Caller, request: SamplesRequest) -> Result<Response, Refused> {
    let is_time = (0.0..=LONGEST).contains(&request.seconds);
    if !is_time || !(1..=MOST_RATE).contains(&request.rate) {
        return Err(Refused::bad(format!(
            "seconds is from 0 to {LONGEST}, rate from 1 to {MOST_RATE}"
        )));
    }
    let choice = Choice {
        pid: Some(request.pid),
        ..Choice::default()
    };
    let members = choice.members()?;
    let plan = Plan {
        duration: Duration::try_from_secs_f64(request.seconds).unwrap_or_default(),
        rate: request.rate,
        thread: request.thread,
        idle: request.idle,
        threads: request.threads,
        functions: request.functions,
        pause: if request.pause {
            Pause::Moving
        } else {
            Pause::Never
        },
    };
    let Some(member) = members.all.first() else {
        return Err(choice::no_target(request.pid));
    };
    let sampled = member.target.sample(&plan, &Stop::default(), |_| {});
    let sampled = sampled.map_err(|error| choice::refused(&error))?;
    Ok(Json(sampled.report()).into_response())
}
