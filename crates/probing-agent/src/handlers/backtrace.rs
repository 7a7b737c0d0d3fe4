//! `/backtrace`: stacks, read from outside.

use axum::response::Response;
use probing_client::{FanOutLimits, LocalValues, Pause, StackQuery};
use probing_proto::agent::{Role, StacksRequest};
use probing_proto::message::threads::ThreadFilter;

use crate::agent::Agent;
use crate::handlers::{TARGET_TIMEOUT, each};
use crate::http::refusal::Refused;
use crate::http::request::Caller;
use crate::target_selection::RequestedTargets;

pub(crate) fn backtrace(
    _: &Agent,
    caller: &Caller,
    request: StacksRequest,
) -> Result<Response, Refused> {
    let kinds = [request.all, request.thread.is_some(), request.tasks];
    if kinds.iter().filter(|is_asked| **is_asked).count() > 1 {
        return Err(Refused::bad(
            "all threads, one thread and tasks exclude each other",
        ));
    }
    let choice = RequestedTargets {
        rank: request.rank,
        ranks: request.ranks.as_deref(),
        pid: request.pid,
        pids: &[],
    };
    let members = choice.members()?;
    let is_one = choice.is_one();
    // Values in the program's own words are made by its code.
    let query = query(&request, caller.role == Role::Control);
    let manner = FanOutLimits::within(TARGET_TIMEOUT);
    if request.tasks {
        return each(&members, is_one, manner, move |member| {
            member.target.stacks(&query)?.tasks()
        });
    }
    each(&members, is_one, manner, move |member| {
        member.target.stacks(&query)?.read()
    })
}

fn query(request: &StacksRequest, may_run_code: bool) -> StackQuery {
    StackQuery {
        threads: ThreadFilter::new(request.all, request.thread.clone()),
        locals: match (request.locals, may_run_code) {
            (false, _) => LocalValues::Omitted,
            (true, false) => LocalValues::FromMemory,
            (true, true) => LocalValues::FromProbe,
        },
        native: request.native,
        pause: Pause::when_moving(request.pause),
        probe_threads: request.probe_threads,
    }
}
