//! What is answered, each kind in its file.

mod backtrace;
mod eval;
mod node;
mod relay;
mod rows;
mod samples;

use std::time::Duration;

use probing_client::{ClientError, Manner, Member, Members, ask_each};
use probing_proto::report::{SetReport, TargetReport};
use serde::Serialize;

pub(crate) use backtrace::backtrace;
pub(crate) use eval::eval;
pub(crate) use node::{description, health, targets};
pub(crate) use relay::relay;
pub(crate) use rows::rows;
pub(crate) use samples::samples;

use crate::choice;
use crate::http::Refused;

/// For each target of a set.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The answer of each; one that does not answer in time is named, and delays nobody.
fn each<R: Send + 'static>(
    members: &Members,
    manner: Manner,
    ask: impl Fn(&Member) -> Result<R, ClientError> + Send + Sync + 'static,
) -> Vec<Result<R, ClientError>> {
    let patience = manner.patience.unwrap_or_default();
    let answers = ask_each(&members.all, manner, ask).into_iter();
    answers
        .map(|answer| answer.unwrap_or(Err(ClientError::TooLong { patience })))
        .collect()
}

/// Each target with its report or its error. The trouble of one that was named alone is a refusal.
fn set<R: Serialize>(
    members: &Members,
    answers: Vec<Result<R, ClientError>>,
    is_one: bool,
) -> Result<Vec<u8>, Refused> {
    if let (true, [Err(error)]) = (is_one, answers.as_slice()) {
        return Err(choice::refused(error));
    }
    let each = members.all.iter().zip(answers);
    let targets = each.map(|(member, answer)| {
        let (report, error) = match answer {
            Ok(report) => (Some(report), None),
            Err(error) => (None, Some(error.to_string())),
        };
        TargetReport {
            target: member.target.to_string(),
            pid: member.pid,
            rank: member.rank,
            error,
            report,
        }
    });
    let missing = &members.missing;
    json(&SetReport {
        targets: targets.collect(),
        missing_ranks: (!missing.is_empty()).then(|| missing.to_string()),
    })
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, Refused> {
    serde_json::to_vec(value).map_err(|error| Refused::new(502, format!("cannot be told: {error}")))
}
