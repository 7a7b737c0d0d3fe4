//! Breakpoints, watchpoints and stopped threads of one target.
//!
//! News come on the connection that follows, between the answers to whatever else is asked there: those that nobody waits
//! for are kept until somebody does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use probing_proto::message::breakpoints::{
    Breakpoint, BreakpointEvent, BreakpointId, SetBreakpoint, Source, StepCall, Stop, StopId,
};
use probing_proto::message::{Call, Event, Message, RequestId};

use crate::error::ClientError;
use crate::probe::Probe;
use crate::probe::connection::CONNECT_TIMEOUT;

/// Arming looks for code in the live process, which takes the GIL.
const ARMING: Duration = Duration::from_secs(15);
/// News that are kept for a client that asks other things; log lines beyond are in `python.captures` all the same.
const MAX_QUEUED_EVENTS: usize = 10_000;

/// News that were heard, and the request that they belong to.
#[derive(Debug, Default)]
pub(crate) struct Following {
    request: Option<RequestId>,
    heard: VecDeque<BreakpointEvent>,
}

impl Following {
    /// Keeps news of what is followed; anything else is a late answer, which nobody needs.
    pub(crate) fn overhear(&mut self, message: Message) {
        if let Event::News(news) = message.event
            && message.id == self.request
        {
            if self.heard.len() == MAX_QUEUED_EVENTS {
                self.forget_one();
            }
            self.heard.push_back(news);
        }
    }

    /// Log lines first: who follows must know which threads are stopped.
    fn forget_one(&mut self) {
        let is_told = |news: &BreakpointEvent| {
            matches!(
                news,
                BreakpointEvent::Logged { .. } | BreakpointEvent::Changed { .. }
            )
        };
        let oldest = self.heard.iter().position(is_told).unwrap_or(0);
        self.heard.remove(oldest);
    }
}

impl Probe {
    /// Arms a breakpoint or a watch.
    pub fn arm(&mut self, arm: SetBreakpoint) -> Result<Breakpoint, ClientError> {
        match self.ask(Call::Arm(arm), ARMING)? {
            Event::Armed(point) => Ok(point),
            _ => Err(self.misunderstood()),
        }
    }

    /// Disarms these, or all when none is named. Gives those that were armed.
    pub fn disarm(&mut self, points: Vec<BreakpointId>) -> Result<Vec<Breakpoint>, ClientError> {
        self.ask_points(Call::Disarm { points })
    }

    /// What is armed.
    pub fn points(&mut self) -> Result<Vec<Breakpoint>, ClientError> {
        self.ask_points(Call::Points)
    }

    /// The threads that are stopped.
    pub fn stops(&mut self) -> Result<Vec<Stop>, ClientError> {
        self.ask_stops(Call::Stops)
    }

    /// Resumes these stopped threads, or all when none is named. Gives the resumed ones.
    pub fn release(&mut self, stops: Vec<StopId>) -> Result<Vec<Stop>, ClientError> {
        self.ask_stops(Call::Release { stops })
    }

    /// Hears of stops and of what points see from now on. Gives the threads that are stopped now.
    pub fn follow(&mut self, driving: bool) -> Result<Vec<Stop>, ClientError> {
        let request = self.send(Call::Follow { driving })?;
        self.following = Following {
            request: Some(request),
            heard: VecDeque::new(),
        };
        match self.answer(request, CONNECT_TIMEOUT)?.0 {
            Event::Stops { stops } => Ok(stops),
            _ => Err(self.misunderstood()),
        }
    }

    /// Whether this connection hears news.
    pub fn is_following(&self) -> bool {
        self.following.request.is_some()
    }

    /// Drives a stop from here; `take` it from whoever else does.
    pub fn drive(&mut self, stop: StopId, take: bool) -> Result<(), ClientError> {
        self.ask(Call::Drive { stop, take }, CONNECT_TIMEOUT)
            .map(drop)
    }

    /// Resumes a thread that this client controls. Its next stop is news.
    pub fn step(&mut self, step: StepCall) -> Result<(), ClientError> {
        self.ask(Call::Step(step), CONNECT_TIMEOUT).map(drop)
    }

    /// Lines of a source file, as the target has it.
    pub fn source(&mut self, file: &str, first: u32, count: u32) -> Result<Source, ClientError> {
        let file = file.to_owned();
        match self.ask(Call::Source { file, first, count }, CONNECT_TIMEOUT)? {
            Event::Source(source) => Ok(source),
            _ => Err(self.misunderstood()),
        }
    }

    /// The next news; `None` when the deadline passed first.
    pub fn next_news(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Option<BreakpointEvent>, ClientError> {
        loop {
            if let Some(news) = self.following.heard.pop_front() {
                return Ok(Some(news));
            }
            let Some(message) = self.connection.receive(deadline)? else {
                return Ok(None);
            };
            self.following.overhear(message);
        }
    }

    /// Takes in what has arrived, without waiting. Whether there are news.
    pub fn hear(&mut self) -> Result<bool, ClientError> {
        while let Some(message) = self.connection.receive_ready()? {
            self.following.overhear(message);
        }
        Ok(!self.following.heard.is_empty())
    }

    fn ask_points(&mut self, call: Call) -> Result<Vec<Breakpoint>, ClientError> {
        match self.ask(call, CONNECT_TIMEOUT)? {
            Event::Points { points } => Ok(points),
            _ => Err(self.misunderstood()),
        }
    }

    fn ask_stops(&mut self, call: Call) -> Result<Vec<Stop>, ClientError> {
        match self.ask(call, CONNECT_TIMEOUT)? {
            Event::Stops { stops } => Ok(stops),
            _ => Err(self.misunderstood()),
        }
    }

    /// It answered something that belongs to another question.
    pub(crate) fn misunderstood(&self) -> ClientError {
        let theirs = self.hello().protocol;
        ClientError::OtherProtocol { theirs }
    }
}

#[cfg(test)]
mod tests {
    use probing_proto::message::breakpoints::{ResumeReason, SourceLocation};

    use super::*;

    fn logged(number: usize) -> BreakpointEvent {
        BreakpointEvent::Logged {
            point: BreakpointId(1),
            text: number.to_string(),
            at: SourceLocation {
                func: "step".into(),
                file: "train.py".into(),
                lineno: 1,
            },
            thread_name: "MainThread".into(),
        }
    }

    #[test]
    fn of_too_many_news_log_lines_are_forgotten_first() {
        let request = Some(RequestId(7));
        let mut following = Following {
            request,
            heard: VecDeque::new(),
        };
        let went_on = BreakpointEvent::WentOn {
            stop: StopId(1),
            because: ResumeReason::Deadline,
        };
        let mut hear = |id, news| {
            let event = Event::News(news);
            following.overhear(Message { id, event });
        };
        hear(request, went_on.clone());
        for number in 0..MAX_QUEUED_EVENTS {
            hear(request, logged(number));
        }
        hear(Some(RequestId(8)), logged(0));
        let mut heard = following.heard.into_iter();
        assert_eq!(heard.next(), Some(went_on));
        assert_eq!(heard.next(), Some(logged(1)));
        assert_eq!(heard.last(), Some(logged(MAX_QUEUED_EVENTS - 1)));
    }
}
