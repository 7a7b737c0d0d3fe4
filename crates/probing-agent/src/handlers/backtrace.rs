//! `/backtrace`: stacks, read from outside.

use axum::response::Response;
use probing_client::{ClientError, FanOutLimits, Member, Pause, StackQuery};
use probing_proto::agent::{Role, StacksRequest};
use probing_proto::report::{BacktraceReport, ReportedThread, TasksReport};

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
    let query = query(&request);
    let manner = FanOutLimits::within(TARGET_TIMEOUT);
    if request.tasks {
        return each(&members, is_one, manner, move |member| {
            tasks(member, &query)
        });
    }
    // Values in the program's own words are made by its code.
    let in_words = request.locals && caller.role == Role::Control;
    let read = move |member: &Member| stacks(member, &request, &query, in_words);
    each(&members, is_one, manner, read)
}

fn query(request: &StacksRequest) -> StackQuery {
    StackQuery {
        locals: request.locals,
        native: request.native,
        pause: if request.pause {
            Pause::Moving
        } else {
            Pause::Never
        },
    }
}

fn tasks(member: &Member, query: &StackQuery) -> Result<TasksReport, ClientError> {
    member.target.stacks(query)?.tasks()
}

fn stacks(
    member: &Member,
    request: &StacksRequest,
    query: &StackQuery,
    in_words: bool,
) -> Result<BacktraceReport, ClientError> {
    let mut report = member.target.stacks(query)?.read()?;
    report.threads.retain(|thread| match &request.thread {
        Some(wanted) => is_named(thread, wanted),
        None => request.all || thread.main,
    });
    if in_words {
        // What was read from outside stays where the probe cannot tell.
        member.target.tell_locals(&mut report).ok();
    }
    Ok(report)
}

fn is_named(thread: &ReportedThread, wanted: &str) -> bool {
    (thread.main && wanted == "main")
        || thread.thread_name.as_deref() == Some(wanted)
        || thread.ident.to_string() == wanted
        || thread.thread_id.is_some_and(|id| id.to_string() == wanted)
}
