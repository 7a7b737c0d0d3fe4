//! What probes were asked, what for, and what their answers mean.

use std::time::{Duration, Instant};

use probing_proto::message::breakpoints::StopId;
use probing_proto::message::{Call, Event, Message, Outcome, RequestId, Stream};
use serde_json::Value;

use super::values::EvalPurpose;
use super::{Link, Refusal, Reply, Session, words_of};

/// How long code that was interrupted may take to end.
const GRACE: Duration = Duration::from_secs(2);

/// A request that is in flight.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) target: usize,
    pub(super) link: Link,
    pub(super) purpose: Purpose,
    /// Then it is interrupted; a second time, given up.
    pub(super) deadline: Option<Instant>,
    pub(super) interrupted: Option<Interrupted>,
}

/// Why a request was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupted {
    /// The editor asked for it.
    Cancelled,
    TimedOut,
}

impl Interrupted {
    fn words(self) -> &'static str {
        match self {
            // The word that the protocol has for it.
            Self::Cancelled => "cancelled",
            Self::TimedOut => "interrupted: it took too long",
        }
    }
}

/// What an answer is for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Purpose {
    /// News of stops and breakpoints, from now on.
    Follow,
    /// Making values reachable in the target.
    Install,
    /// Setting breakpoint `id` of the editor.
    Set {
        id: i64,
    },
    /// Deleting breakpoints that the request with this number leaves out.
    Delete {
        seq: i64,
    },
    /// Looking what became of breakpoints.
    Look,
    /// A thread takes a step, or resumes.
    Step {
        reply: Reply,
        stop: StopId,
    },
    Eval(EvalPurpose),
    Source {
        reply: Reply,
    },
    Complete {
        reply: Reply,
        start: i64,
        length: i64,
    },
    /// What has to be done before the session ends.
    Leave,
    /// Nobody waits for it.
    Unheard,
}

impl Purpose {
    pub(super) fn reply(&self) -> Option<&Reply> {
        match self {
            Self::Step { reply, .. } | Self::Source { reply } | Self::Complete { reply, .. } => {
                Some(reply)
            }
            Self::Eval(eval) => Some(eval.reply()),
            Self::Follow
            | Self::Install
            | Self::Set { .. }
            | Self::Delete { .. }
            | Self::Look
            | Self::Leave
            | Self::Unheard => None,
        }
    }
}

impl Session {
    pub(super) fn hear(&mut self, target: usize, link: Link, message: Message) {
        let Some(id) = message.id else {
            return;
        };
        let is_meant = |asked: &&Asked| asked.target == target && asked.link == link;
        let Some(asked) = self.asked.get(&id).filter(is_meant) else {
            return;
        };
        match (&asked.purpose, message.event) {
            (Purpose::Follow, Event::News(news)) => self.take_news(target, news),
            (Purpose::Follow, Event::Stops { stops }) => self.take_stops(target, stops),
            (Purpose::Eval(_), Event::Output { stream, text }) => {
                let category = match stream {
                    Stream::Stdout => "stdout",
                    Stream::Stderr => "stderr",
                };
                self.say(category, &text);
            }
            (_, Event::Output { .. } | Event::News(_)) => {}
            (_, event) => {
                if let Some(asked) = self.asked.remove(&id) {
                    self.take_answer(asked, event);
                }
            }
        }
        self.leave_on();
    }

    fn take_answer(&mut self, asked: Asked, event: Event) {
        let Asked {
            target,
            purpose,
            interrupted,
            ..
        } = asked;
        if let Event::Failed(failure) = event {
            let refusal = match interrupted {
                Some(interrupted) => Refusal::new(interrupted.words()),
                None => Refusal::new(words_of(&failure)),
            };
            return self.take_failure(target, purpose, &refusal);
        }
        match (purpose, event) {
            (Purpose::Install, Event::Evaluated(evaluated)) => {
                self.installed(target, evaluated.outcome);
            }
            (Purpose::Set { id }, Event::Armed(breakpoint)) => {
                self.breakpoint_is_set(target, id, breakpoint);
            }
            (Purpose::Delete { seq }, _) => self.breakpoints_are_deleted(seq),
            (Purpose::Look, Event::Points { points }) => self.look_at_breakpoints(target, points),
            (Purpose::Step { reply, stop }, Event::Done) => self.has_moved(&reply, target, stop),
            (Purpose::Eval(eval), Event::Evaluated(evaluated)) => {
                match (interrupted, &evaluated.outcome) {
                    (Some(interrupted), Outcome::Raised(_)) => {
                        self.refuse_eval(&eval, &Refusal::new(interrupted.words()));
                    }
                    _ => self.evaluated(target, eval, evaluated.outcome),
                }
            }
            (Purpose::Source { reply }, Event::Source(source)) => self.source_came(&reply, source),
            (
                Purpose::Complete {
                    reply,
                    start,
                    length,
                },
                Event::Completions { completions },
            ) => {
                self.completions_came(&reply, (start, length), completions);
            }
            (Purpose::Follow | Purpose::Leave | Purpose::Unheard, _) => {}
            (purpose, _) => {
                let refusal = Refusal::new("the probe answers another question");
                self.take_failure(target, purpose, &refusal);
            }
        }
    }

    fn take_failure(&mut self, target: usize, purpose: Purpose, refusal: &Refusal) {
        match purpose {
            Purpose::Install => self.not_installed(target, &refusal.text),
            Purpose::Delete { seq } => self.breakpoints_are_deleted(seq),
            Purpose::Set { id } => self.breakpoint_is_not_set(target, id, &refusal.text),
            Purpose::Step { reply, stop } => self.has_not_moved(&reply, target, stop, refusal),
            Purpose::Eval(eval) => self.refuse_eval(&eval, refusal),
            Purpose::Source { reply } | Purpose::Complete { reply, .. } => {
                self.refuse(&reply, refusal);
            }
            Purpose::Follow => {
                let text = format!("stops of this process are not heard: {}\n", refusal.text);
                self.say("stderr", &text);
            }
            Purpose::Look | Purpose::Leave | Purpose::Unheard => {}
        }
    }

    /// Nothing more comes from a target.
    pub(super) fn fail_asked(&mut self, target: usize, reason: &str) {
        let mut ids: Vec<RequestId> = self
            .asked
            .iter()
            .filter(|(_, asked)| asked.target == target)
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        for id in ids {
            match self.asked.remove(&id).map(|asked| asked.purpose) {
                None | Some(Purpose::Follow) => {}
                // The thread has resumed, and its process has ended before it was said.
                Some(Purpose::Step { reply, stop }) => self.has_moved(&reply, target, stop),
                Some(purpose) => self.take_failure(target, purpose, &Refusal::new(reason)),
            }
        }
    }

    /// Interrupts a request. It still has its own answer.
    pub(super) fn interrupt(&mut self, id: RequestId, why: Interrupted) {
        let deadline = self.now + GRACE;
        let Some(asked) = self.asked.get_mut(&id) else {
            return;
        };
        if asked.interrupted.is_some() {
            return;
        }
        asked.interrupted = Some(why);
        asked.deadline = Some(deadline);
        let (target, link) = (asked.target, asked.link);
        let cancel = Call::Cancel { request: id };
        self.ask(target, link, cancel, Purpose::Unheard);
    }

    /// Does what is due.
    pub(super) fn look_at_time(&mut self) {
        let now = self.now;
        let is_due = |asked: &Asked| asked.deadline.is_some_and(|deadline| deadline <= now);
        let mut due: Vec<(RequestId, Option<Interrupted>)> = self
            .asked
            .iter()
            .filter(|(_, asked)| is_due(asked))
            .map(|(id, asked)| (*id, asked.interrupted))
            .collect();
        due.sort_unstable_by_key(|(id, _)| *id);
        for (id, interrupted) in due {
            match interrupted {
                None => self.interrupt(id, Interrupted::TimedOut),
                Some(why) => {
                    if let Some(asked) = self.asked.remove(&id) {
                        let text =
                            format!("{}; it does not end, inside a call into C", why.words());
                        self.take_failure(asked.target, asked.purpose, &Refusal::new(text));
                    }
                }
            }
        }
        self.look_at_breakpoints_if_due();
        self.leave_on();
    }

    pub(super) fn null(&mut self, reply: &Reply) {
        self.answer(reply, Value::Null);
    }
}
