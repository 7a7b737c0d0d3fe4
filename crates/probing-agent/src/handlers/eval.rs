//! `/eval`: code in targets, on all of them at the same time.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use probing_client::{
    AttachOptions, ClientError, ConnectedProbe, Entry, EvalEnd, EvalEvent, FanOutLimits,
    SelectionError, Target,
};
use probing_proto::agent::EvalRequest;
use probing_proto::message::{Eval, Evaluated, Outcome};
use probing_proto::report::EvalReport;

use crate::agent::Agent;
use crate::handlers::each;
use crate::http::refusal::Refused;
use crate::http::request::Caller;
use crate::http::requester::Requester;
use crate::target_selection::{self, RequestedTargets};

/// Beyond the time that the code has: for bringing the probe in, and for what does not end when interrupted.
const MARGIN: Duration = Duration::from_secs(15);
const USUAL_TIMEOUT: f64 = 30.0;
/// Nobody waits longer for an answer over HTTP; a conversation with the probe has no such end.
const MAX_TIMEOUT_SECONDS: f64 = 3600.0;
const USUAL_OUTPUT: u64 = 1 << 20;
const MAX_OUTPUT_BYTES: u64 = 64 << 20;

pub(crate) fn eval(
    agent: &Agent,
    caller: &Caller,
    request: EvalRequest,
) -> Result<Response, Refused> {
    let timeout = timeout(&request)?;
    let choice = RequestedTargets {
        rank: request.rank,
        ranks: request.ranks.as_deref(),
        pid: request.pid,
        pids: &[],
    };
    let members = choice.members()?;
    if !choice.is_explicit() && members.all.len() > 1 {
        let group = members.all.iter().map(|member| &member.who).collect();
        let refused =
            target_selection::refused(&ClientError::Selection(SelectionError::NotExplicit {
                group,
            }));
        return Err(refused.hint("name one with rank or pid, or send \"ranks\": \"all\""));
    }
    for member in &members.all {
        if let Some(pid) = member.pid {
            agent.note(&caller.actor, "eval", Some(pid), Some(&request.code))?;
        }
    }
    let eval = Arc::new(Eval {
        code: request.code,
        thread: request.thread.map(String::from),
        frame: request.frame,
        max_output: Some(
            request
                .max_output
                .unwrap_or(USUAL_OUTPUT)
                .min(MAX_OUTPUT_BYTES),
        ),
        ..Eval::default()
    });
    let manner = FanOutLimits {
        // Code may wait for the same code elsewhere, as collective operations do.
        at_once: members.all.len(),
        timeout: Some(timeout + MARGIN),
    };
    let is_one = choice.is_one() || members.all.len() == 1;
    let requester = Arc::clone(&caller.requester);
    each(&members, is_one, manner, move |member| {
        run(&member.target, &eval, timeout, &requester)
    })
}

fn timeout(request: &EvalRequest) -> Result<Duration, Refused> {
    let seconds = request.timeout_seconds.unwrap_or(USUAL_TIMEOUT);
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) if seconds <= MAX_TIMEOUT_SECONDS => Ok(timeout),
        _ => Err(Refused::bad(format!(
            "timeout_seconds is from 0 to {MAX_TIMEOUT_SECONDS}"
        ))),
    }
}

fn run(
    target: &Target,
    eval: &Eval,
    timeout: Duration,
    requester: &Requester,
) -> Result<EvalReport, ClientError> {
    requester.check()?;
    let ConnectedProbe { mut probe, .. } =
        target.connect(&Entry::Attach(AttachOptions::default()))?;
    requester.check()?;
    let canceller = probe.start_eval(eval.clone())?;
    requester.started(&canceller);
    let mut output = String::new();
    let end = probe.finish_eval(&canceller, Some(timeout), |news| {
        if let EvalEvent::Output(_, text) = news {
            output.push_str(text);
        }
    })?;
    let pid = probe.hello().pid;
    let (evaluated, timed_out, stuck) = match end {
        EvalEnd::Evaluated(evaluated) => (evaluated, false, None),
        EvalEnd::TimedOut(evaluated) => (evaluated, true, None),
        EvalEnd::Stuck(progress) => {
            let nothing = Evaluated {
                took_nanos: timeout.as_nanos() as u64,
                output_dropped: 0,
                thread: None,
                outcome: Outcome::Finished { value: None },
            };
            (nothing, true, Some(target.stuck(progress)))
        }
    };
    Ok(EvalReport {
        stuck,
        ..EvalReport::new(pid, output, evaluated, timed_out)
    })
}
