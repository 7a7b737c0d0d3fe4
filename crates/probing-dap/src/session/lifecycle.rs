//! From `initialize` to the end: attaching, configuring, leaving.

use std::time::{Duration, Instant};

use probing_proto::dap::arguments::{Attach, Disconnect, Initialize};
use probing_proto::dap::body::{Capabilities, ExceptionBreakpointFilter, ProcessEvent};
use probing_proto::message::breakpoints::{Controller, DisconnectPolicy, StopId};
use probing_proto::message::{Call, Eval, Failure};
use serde_json::Value;

use super::breakpoints::{RAISED, UNCAUGHT};
use super::config::AttachConfig;
use super::probes::{Interrupted, Purpose};
use super::values::Readiness;
use super::{
    Answer, Effect, Handled, Link, ReachedTarget, Refusal, Reply, Session, Target, to_value,
};

/// How long leaving may take; what is not done by then is done by the probes when the connections close.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Where the session is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Fresh,
    Initialized,
    /// Processes are looked for.
    Reaching,
    /// They are debugged.
    Attached,
    /// The editor leaves.
    Leaving(Leaving),
    Ended,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    reply: Option<Reply>,
    step: LeaveStep,
    keeps_stopped: bool,
    terminates: bool,
    until: Instant,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaveStep {
    /// Breakpoints are deleted first: a thread that resumes must not stop again.
    Breakpoints,
    Stops,
    /// The processes are to end.
    End,
}

impl Phase {
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self, Self::Leaving(_))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Leaving(leaving) => Some(leaving.until),
            _ => None,
        }
    }
}

impl Session {
    pub(super) fn initialize(&mut self, arguments: &Initialize) -> Handled {
        if self.phase != Phase::Fresh {
            return Err(Refusal::new("initialize comes once"));
        }
        if arguments.lines_start_at1 == Some(false) || arguments.columns_start_at1 == Some(false) {
            return Err(Refusal::shown("lines and columns are counted from 1 here"));
        }
        self.phase = Phase::Initialized;
        Ok(Answer::Now(to_value(&capabilities())))
    }

    pub(super) fn attach(&mut self, reply: &Reply, arguments: Attach) -> Handled {
        match self.phase {
            Phase::Initialized => {}
            Phase::Fresh => return Err(Refusal::new("initialize comes first")),
            _ => return Err(Refusal::new("a session attaches once")),
        }
        if let Some(token) = &self.surroundings.token
            && !is_same(
                token,
                arguments.adapter_token.as_deref().unwrap_or_default(),
            )
        {
            let refusal = Refusal::shown(
                "this adapter listens on a port: set adapterToken to the token that it printed",
            );
            self.refuse(reply, &refusal);
            self.end();
            return Ok(Answer::Later);
        }
        let config = AttachConfig::parse(arguments).map_err(Refusal::shown)?;
        self.config = config.clone();
        self.attach = Some(reply.clone());
        self.phase = Phase::Reaching;
        self.effects.push(Effect::Reach(Box::new(config)));
        Ok(Answer::Later)
    }

    pub(super) fn not_reached(&mut self, failure: &Failure) {
        if self.phase != Phase::Reaching {
            return;
        }
        self.phase = Phase::Initialized;
        if let Some(reply) = self.attach.take() {
            self.refuse(&reply, &Refusal::shown(super::words_of(failure)));
        }
    }

    pub(super) fn reached(&mut self, targets: Vec<ReachedTarget>) {
        if self.phase != Phase::Reaching {
            return;
        }
        self.phase = Phase::Attached;
        self.targets = targets
            .into_iter()
            .map(|reached| Target {
                reached,
                stops: Vec::new(),
                threads: Vec::new(),
                values: Readiness::Absent,
                is_gone: false,
            })
            .collect();
        for target in 0..self.targets.len() {
            let follow = Call::Follow { driving: true };
            self.ask(target, Link::Control, follow, Purpose::Follow);
        }
        self.event("initialized", Value::Null);
        self.set_configured_exceptions();
        self.begin_if_ready();
    }

    pub(super) fn configuration_done(&mut self, _: &Reply) -> Handled {
        if self.is_configured {
            return Err(Refusal::new("configurationDone comes once"));
        }
        if !matches!(self.phase, Phase::Reaching | Phase::Attached) {
            return Err(Refusal::new("attach comes first"));
        }
        self.is_configured = true;
        Ok(Answer::Now(Value::Null))
    }

    /// What follows an answer: the order in which editors expect the two.
    pub(super) fn after(&mut self, reply: &Reply) {
        if reply.command == "configurationDone" {
            self.begin_if_ready();
        }
    }

    fn begin_if_ready(&mut self) {
        if !self.is_configured || self.phase != Phase::Attached {
            return;
        }
        let Some(reply) = self.attach.take() else {
            return;
        };
        self.answer(&reply, Value::Null);
        for target in 0..self.targets.len() {
            let reached = &self.targets[target].reached;
            let body = ProcessEvent {
                name: reached.name.clone(),
                system_process_id: reached.pid,
                is_local_process: reached.is_local,
                start_method: "attach",
            };
            self.event("process", to_value(&body));
        }
        let is_several = self.targets.len() > 1;
        for target in 0..self.targets.len() {
            self.tell_stops(target);
            if is_several {
                let label = self.targets[target].reached.label.clone();
                self.say("console", &format!("attached to {label}\n"));
            }
        }
    }

    /// Whether the editor may be told of stops.
    pub(super) fn has_begun(&self) -> bool {
        self.is_configured && self.attach.is_none() && self.phase == Phase::Attached
    }

    pub(super) fn disconnect(&mut self, reply: &Reply, arguments: &Disconnect) -> Handled {
        if let Phase::Leaving(_) = self.phase {
            return Err(Refusal::new("the session ends"));
        }
        let keeps_stopped = match arguments.suspend_debuggee {
            Some(keeps) => keeps,
            None => self.config.hold.gone == DisconnectPolicy::Keep,
        };
        self.attach = None;
        self.phase = Phase::Leaving(Leaving {
            reply: Some(reply.clone()),
            step: LeaveStep::Breakpoints,
            keeps_stopped: keeps_stopped && !arguments.terminate_debuggee,
            terminates: arguments.terminate_debuggee,
            until: self.now + LEAVE_TIMEOUT,
        });
        let running: Vec<_> = self
            .asked
            .iter()
            .filter(|(_, asked)| matches!(asked.purpose, Purpose::Eval(_)))
            .map(|(id, _)| *id)
            .collect();
        for id in running {
            self.interrupt(id, Interrupted::Cancelled);
        }
        self.delete_all_breakpoints();
        self.leave_on();
        Ok(Answer::Later)
    }

    /// Goes on leaving as far as nothing has to be waited for.
    pub(super) fn leave_on(&mut self) {
        loop {
            let Phase::Leaving(leaving) = &self.phase else {
                return;
            };
            let (step, is_late) = (leaving.step, self.now >= leaving.until);
            let (keeps_stopped, terminates) = (leaving.keeps_stopped, leaving.terminates);
            let waits = self
                .asked
                .values()
                .any(|asked| asked.purpose == Purpose::Leave);
            let all_gone = self.targets.iter().all(|target| target.is_gone);
            if waits && !is_late && !all_gone {
                return;
            }
            let next = match step {
                LeaveStep::Breakpoints if !keeps_stopped && !is_late => {
                    self.resume_all();
                    LeaveStep::Stops
                }
                LeaveStep::Breakpoints | LeaveStep::Stops
                    if terminates && !is_late && !all_gone =>
                {
                    self.kill_all();
                    LeaveStep::End
                }
                LeaveStep::End if !all_gone && !is_late => return,
                _ => return self.end(),
            };
            if let Phase::Leaving(leaving) = &mut self.phase {
                leaving.step = next;
            }
        }
    }

    fn resume_all(&mut self) {
        for target in 0..self.targets.len() {
            let ours = |stop: &&super::stops::StoppedThread| {
                stop.stop.driver == Controller::You || stop.moves()
            };
            let stops = self.targets[target].stops.iter().filter(ours);
            let stops: Vec<StopId> = stops.map(|stop| stop.stop.stop).collect();
            if !stops.is_empty() && !self.targets[target].is_gone {
                let call = Call::Release { stops };
                self.ask(target, Link::Control, call, Purpose::Leave);
            }
        }
    }

    fn kill_all(&mut self) {
        for target in 0..self.targets.len() {
            if !self.targets[target].is_gone {
                let eval = Call::Eval(Eval::of(
                    "__import__('os').kill(__import__('os').getpid(), 15)",
                ));
                self.ask(target, Link::Support, eval, Purpose::Unheard);
            }
        }
    }

    /// The processes end as SIGTERM ends them; that they have ended is told when they have.
    pub(super) fn terminate(&mut self) -> Answer {
        self.delete_all_breakpoints();
        self.resume_all();
        self.kill_all();
        Answer::Now(Value::Null)
    }

    pub(super) fn closed(&mut self, target: usize, reason: &str) {
        let Some(known) = self.targets.get_mut(target).filter(|known| !known.is_gone) else {
            return;
        };
        known.is_gone = true;
        let label = known.reached.label.clone();
        let stops: Vec<StopId> = known.stops.drain(..).map(|stop| stop.stop.stop).collect();
        for stop in stops {
            self.forget_values(Self::key(target, stop));
        }
        self.fail_asked(target, reason);
        self.lists_no_more(target);
        if self.phase.is_leaving() {
            return self.leave_on();
        }
        self.say("console", &format!("{label}: {reason}\n"));
        if self.targets.iter().all(|target| target.is_gone) {
            if let Some(reply) = self.attach.take() {
                self.refuse(&reply, &Refusal::shown(reason));
            }
            self.event("terminated", Value::Null);
        }
    }

    /// The session is over: an editor that asked to leave is answered.
    pub(super) fn end(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Ended);
        if let Phase::Leaving(Leaving {
            reply: Some(reply), ..
        }) = phase
        {
            self.event("terminated", Value::Null);
            self.answer(&reply, Value::Null);
        }
        self.effects.push(Effect::End);
    }
}

/// Takes as long wherever the two differ.
fn is_same(token: &str, given: &str) -> bool {
    let pairs = token.bytes().zip(given.bytes());
    let difference = pairs.fold(0, |difference, (one, other)| difference | (one ^ other));
    token.len() == given.len() && difference == 0
}

fn capabilities() -> Capabilities {
    let filter =
        |filter: &str, label: &str, description: &str, default| ExceptionBreakpointFilter {
            filter: filter.to_owned(),
            label: label.to_owned(),
            description: description.to_owned(),
            default,
            supports_condition: filter == RAISED,
            condition_description: (filter == RAISED)
                .then(|| "classes, with commas: ValueError, json.JSONDecodeError".to_owned()),
        };
    Capabilities {
        supports_configuration_done_request: true,
        supports_function_breakpoints: true,
        supports_conditional_breakpoints: true,
        supports_hit_conditional_breakpoints: true,
        supports_evaluate_for_hovers: true,
        supports_set_variable: true,
        supports_set_expression: true,
        supports_goto_targets_request: true,
        supports_completions_request: true,
        completion_trigger_characters: vec![".".to_owned()],
        supports_exception_options: false,
        supports_exception_info_request: true,
        supports_exception_filter_options: true,
        exception_breakpoint_filters: vec![
            filter(
                RAISED,
                "Raised Exceptions",
                "Stop where an exception is raised, also if it is caught",
                false,
            ),
            filter(
                UNCAUGHT,
                "Uncaught Exceptions",
                "Stop where an exception ends the program, a thread or a task",
                true,
            ),
        ],
        support_terminate_debuggee: true,
        support_suspend_debuggee: true,
        supports_delayed_stack_trace_loading: true,
        supports_log_points: true,
        supports_terminate_request: true,
        supports_data_breakpoints: true,
        supports_clipboard_context: true,
        supports_cancel_request: true,
        supports_single_thread_execution_requests: true,
    }
}
