//! Threads: which there are, which have stopped, where, and how they resume.

use std::collections::HashSet;

use probing_proto::dap::arguments::{GotoTargets, OfThread, StackTrace};
use probing_proto::dap::body::{
    self, Continued, ContinuedEvent, ExceptionDetails, ExceptionInfo, GotoTarget, StackFrame,
    StoppedEvent, ThreadEvent,
};
use probing_proto::message::Call;
use probing_proto::message::breakpoints::{
    BreakpointEvent, Controller, ResumeReason, SourceLocation, Step, StepCall, Stop, StopId,
    StopReason,
};

use super::ids::StopKey;
use super::probes::Purpose;
use super::{Answer, Effect, Handled, Link, ListedThread, Refusal, Reply, Session, to_value};

/// Ids of threads of one target: the target's place times this, and the thread's place.
const THREADS_OF_TARGET: i64 = 1_000_000;

/// A thread that has stopped, and what it was asked to do.
#[derive(Debug)]
pub(super) struct StoppedThread {
    pub(super) stop: Stop,
    motion: Motion,
    /// The frames that the editor knows, innermost first.
    frames: Vec<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Motion {
    Stands,
    /// It takes a step, and stops again.
    Steps,
    /// It goes to a line, and stands there.
    Jumps,
    Resumes,
}

impl StoppedThread {
    /// Whether it was asked to move and has not stopped again.
    pub(super) fn moves(&self) -> bool {
        self.motion != Motion::Stands
    }
}

/// A frame that the editor knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) key: StopKey,
    /// By `threading.get_ident()`.
    pub(super) thread: u64,
    /// 0 is the innermost.
    pub(super) depth: u32,
    pub(super) location: SourceLocation,
}

/// A list of threads that is being collected.
#[derive(Debug)]
pub(super) struct ThreadsRequest {
    reply: Reply,
    waits_for: HashSet<usize>,
    threads: Vec<body::Thread>,
}

impl Session {
    pub(super) fn take_stops(&mut self, target: usize, stops: Vec<Stop>) {
        for stop in stops {
            self.put_stop(target, stop);
        }
        if self.has_begun() {
            self.tell_stops(target);
        }
    }

    pub(super) fn take_news(&mut self, target: usize, news: BreakpointEvent) {
        match news {
            BreakpointEvent::Stopped { stop } => {
                let (id, has_begun) = (stop.stop, self.has_begun());
                let jumped = self.put_stop(target, stop) == Some(Motion::Jumps);
                if has_begun {
                    self.tell_stop(target, id, jumped);
                }
            }
            BreakpointEvent::WentOn { stop, because } => self.went_on(target, stop, because),
            BreakpointEvent::Driven { stop, driver } => {
                let stops = &mut self.targets[target].stops;
                if let Some(known) = stops.iter_mut().find(|known| known.stop.stop == stop) {
                    known.stop.driver = driver;
                }
            }
            BreakpointEvent::Logged {
                point, text, at, ..
            } => {
                self.logged(target, point, &text, &at);
            }
            BreakpointEvent::Changed { .. } => {}
            BreakpointEvent::Disarmed { point, reason } => {
                self.breakpoint_is_over(target, point, &reason);
            }
        }
    }

    /// Takes in a stop that is new, or that stands elsewhere now. Gives what it did before.
    fn put_stop(&mut self, target: usize, stop: Stop) -> Option<Motion> {
        self.forget_values(Self::key(target, stop.stop));
        self.prepare_values(target);
        let stops = &mut self.targets[target].stops;
        let known = stops.iter().position(|known| known.stop.stop == stop.stop);
        let new = StoppedThread {
            stop,
            motion: Motion::Stands,
            frames: Vec::new(),
        };
        if let Some(at) = known {
            return Some(std::mem::replace(&mut stops[at], new).motion);
        }
        stops.push(new);
        None
    }

    /// Tells the editor of all threads of a target that stand.
    pub(super) fn tell_stops(&mut self, target: usize) {
        let stops: Vec<StopId> = self.targets[target]
            .stops
            .iter()
            .filter(|stop| !stop.moves())
            .map(|stop| stop.stop.stop)
            .collect();
        for stop in stops {
            self.tell_stop(target, stop, false);
        }
    }

    fn tell_stop(&mut self, target: usize, stop: StopId, jumped: bool) {
        let Some(stop) = self
            .stopped(Self::key(target, stop))
            .map(|it| it.stop.clone())
        else {
            return;
        };
        let thread_id = self.thread_id(target, stop.thread);
        let point = stop.why.point();
        let hit = point.and_then(|point| self.breakpoints.hit(target, point));
        let (mut description, mut text) = (None, None);
        let reason = match &stop.why {
            _ if jumped => "goto",
            StopReason::Breakpoint { .. } => match hit {
                Some((_, true)) => "function breakpoint",
                _ => "breakpoint",
            },
            StopReason::Step | StopReason::Returned { .. } => "step",
            StopReason::Asked => "breakpoint",
            StopReason::Changed { .. } => "data breakpoint",
            StopReason::Raised {
                exception, message, ..
            } => {
                text = Some(if message.is_empty() {
                    exception.clone()
                } else {
                    format!("{exception}: {message}")
                });
                "exception"
            }
        };
        let is_plain = match stop.why {
            StopReason::Step => true,
            // One of another client is named.
            StopReason::Breakpoint { .. } => hit.is_some(),
            _ => false,
        };
        if !is_plain {
            description = Some(stop.why.to_string());
        }
        if stop.driver == Controller::Another {
            let note = "another client controls this thread";
            description = Some(description.map_or(note.to_owned(), |it| format!("{it} ({note})")));
        }
        let event = StoppedEvent {
            reason,
            description,
            thread_id,
            text,
            all_threads_stopped: false,
            hit_breakpoint_ids: hit.map(|(id, _)| id).into_iter().collect(),
        };
        self.event("stopped", to_value(&event));
    }

    fn went_on(&mut self, target: usize, stop: StopId, because: ResumeReason) {
        let stops = &mut self.targets[target].stops;
        let Some(at) = stops.iter().position(|known| known.stop.stop == stop) else {
            return;
        };
        let known = stops.remove(at);
        self.forget_values(Self::key(target, stop));
        if !self.has_begun() {
            return;
        }
        let thread_id = self.thread_id(target, known.stop.thread);
        if known.motion == Motion::Stands {
            let event = ContinuedEvent {
                thread_id,
                all_threads_continued: false,
            };
            self.event("continued", to_value(&event));
        }
        let name = &known.stop.thread_name;
        match because {
            ResumeReason::Deadline => {
                let text = format!("{name} has resumed: its stop timed out (stopTimeout)\n");
                self.say("console", &text);
            }
            ResumeReason::Interrupted => {
                let text = format!("{name} has resumed: the program got a Ctrl-C\n");
                self.say("console", &text);
            }
            ResumeReason::ThreadEnded => {
                let event = ThreadEvent {
                    reason: "exited",
                    thread_id,
                };
                self.event("thread", to_value(&event));
            }
            ResumeReason::Asked | ResumeReason::DriverGone | ResumeReason::Detached => {}
        }
    }

    /// The editor's number of a thread.
    fn thread_id(&mut self, target: usize, ident: u64) -> i64 {
        let threads = &mut self.targets[target].threads;
        let at = threads.iter().position(|known| *known == ident);
        let at = at.unwrap_or_else(|| {
            threads.push(ident);
            threads.len() - 1
        });
        target as i64 * THREADS_OF_TARGET + at as i64 + 1
    }

    /// The stop of a thread that the editor names.
    fn stop_of_thread(&self, thread_id: i64) -> Result<StopKey, Refusal> {
        let unknown = || Refusal::new(format!("no thread has this id: {thread_id}"));
        let place = usize::try_from(thread_id - 1).map_err(|_negative| unknown())?;
        let (target, at) = (
            place / THREADS_OF_TARGET as usize,
            place % THREADS_OF_TARGET as usize,
        );
        let known = self.targets.get(target).ok_or_else(unknown)?;
        let ident = known.threads.get(at).ok_or_else(unknown)?;
        let stop = known
            .stops
            .iter()
            .find(|stop| stop.stop.thread == *ident && !stop.moves());
        let stop = stop.ok_or_else(|| Refusal::new("the thread is running"))?;
        Ok(Self::key(target, stop.stop.stop))
    }

    pub(super) fn threads(&mut self, reply: &Reply) -> Answer {
        let living = |(_, target): &(usize, &super::Target)| !target.is_gone;
        let targets = self.targets.iter().enumerate().filter(living);
        let waits_for: HashSet<usize> = targets.map(|(target, _)| target).collect();
        let mut ordered: Vec<usize> = waits_for.iter().copied().collect();
        ordered.sort_unstable();
        for target in &ordered {
            self.effects.push(Effect::ListThreads { target: *target });
        }
        self.listings.push(ThreadsRequest {
            reply: reply.clone(),
            waits_for,
            threads: Vec::new(),
        });
        self.answer_listings();
        Answer::Later
    }

    pub(super) fn listed(&mut self, target: usize, mut listed: Vec<ListedThread>) {
        let Some(known) = self.targets.get(target) else {
            return;
        };
        // A stop is known, even if the process could not be looked at.
        for stop in &known.stops {
            if !listed.iter().any(|thread| thread.ident == stop.stop.thread) {
                listed.push(ListedThread {
                    ident: stop.stop.thread,
                    name: stop.stop.thread_name.clone(),
                });
            }
        }
        let label = (self.targets.len() > 1).then(|| known.reached.label.clone());
        let mut threads = Vec::new();
        for thread in listed {
            let id = self.thread_id(target, thread.ident);
            let name = match &label {
                Some(label) => format!("{label} · {}", thread.name),
                None => thread.name,
            };
            threads.push(body::Thread { id, name });
        }
        // Each answer is for the oldest request that waits for it.
        let mut waiting = self.listings.iter_mut();
        if let Some(listing) = waiting.find(|listing| listing.waits_for.contains(&target)) {
            listing.waits_for.remove(&target);
            listing.threads.extend(threads);
        }
        self.answer_listings();
    }

    /// A target that has gone lists nothing.
    pub(super) fn lists_no_more(&mut self, target: usize) {
        for listing in &mut self.listings {
            listing.waits_for.remove(&target);
        }
        self.answer_listings();
    }

    fn answer_listings(&mut self) {
        let is_whole = |listing: &ThreadsRequest| listing.waits_for.is_empty();
        while let Some(at) = self.listings.iter().position(is_whole) {
            let mut listing = self.listings.remove(at);
            listing.threads.sort_by_key(|thread| thread.id);
            let threads = body::Threads {
                threads: listing.threads,
            };
            self.answer(&listing.reply, to_value(&threads));
        }
    }

    pub(super) fn stack_trace(&mut self, arguments: &StackTrace) -> Handled {
        let key = self.stop_of_thread(arguments.thread_id)?;
        self.know_frames(key);
        let stopped = self
            .stopped(key)
            .ok_or_else(|| Refusal::new("the thread is running"))?;
        let total = stopped.frames.len();
        let first = usize::try_from(arguments.start_frame.unwrap_or(0)).unwrap_or(0);
        let levels = match arguments.levels {
            Some(levels) if levels > 0 => levels as usize,
            _ => total,
        };
        let ids: Vec<i64> = stopped
            .frames
            .iter()
            .skip(first)
            .take(levels)
            .copied()
            .collect();
        let mut stack_frames = Vec::new();
        for id in ids {
            let Some(frame) = self.frames.find(id).cloned() else {
                continue;
            };
            let is_subtle = self.config.just_my_code && is_library(&frame.location.file);
            stack_frames.push(StackFrame {
                id,
                name: frame.location.func.clone(),
                source: self.source_of(key.target, &frame.location.file),
                line: i64::from(frame.location.lineno),
                column: 1,
                presentation_hint: is_subtle.then_some("subtle"),
            });
        }
        Ok(Answer::Now(to_value(&body::StackTrace {
            stack_frames,
            total_frames: total as i64,
        })))
    }

    /// Gives the frames of a stop their ids.
    fn know_frames(&mut self, key: StopKey) {
        let Some(stopped) = self.stopped(key).filter(|stop| stop.frames.is_empty()) else {
            return;
        };
        let (thread, locations) = (stopped.stop.thread, stopped.stop.frames.clone());
        let frames: Vec<i64> = (0..)
            .zip(locations)
            .map(|(depth, location)| {
                let frame = Frame {
                    key,
                    thread,
                    depth,
                    location,
                };
                self.frames.give(Some(key), frame)
            })
            .collect();
        let stops = &mut self.targets[key.target].stops;
        if let Some(stopped) = stops.iter_mut().find(|it| it.stop.stop == key.stop) {
            stopped.frames = frames;
        }
    }

    pub(super) fn step(&mut self, reply: &Reply, arguments: &OfThread) -> Handled {
        let key = self.stop_of_thread(arguments.thread_id)?;
        let (step, motion) = match reply.command.as_str() {
            "continue" => (Step::Continue, Motion::Resumes),
            "next" => (Step::Over, Motion::Steps),
            "stepIn" => (Step::Into, Motion::Steps),
            "stepOut" => (Step::Out { frame: 0 }, Motion::Steps),
            _ => {
                let at = usize::try_from(arguments.target_id - 1).ok();
                let line = at.and_then(|at| self.goto_lines.get(at));
                let line = *line.ok_or_else(|| Refusal::new("no target has this id"))?;
                (Step::Jump { line }, Motion::Jumps)
            }
        };
        let call = Call::Step(StepCall {
            stop: key.stop,
            step,
            my_code: self.config.just_my_code && motion == Motion::Steps,
        });
        let purpose = Purpose::Step {
            reply: reply.clone(),
            stop: key.stop,
        };
        self.set_motion(key, motion);
        self.ask(key.target, Link::Control, call, purpose);
        Ok(Answer::Later)
    }

    fn set_motion(&mut self, key: StopKey, motion: Motion) {
        let stops = &mut self.targets[key.target].stops;
        if let Some(stopped) = stops.iter_mut().find(|it| it.stop.stop == key.stop) {
            stopped.motion = motion;
        }
    }

    /// The probe has taken the order.
    pub(super) fn has_moved(&mut self, reply: &Reply, target: usize, stop: StopId) {
        let key = Self::key(target, stop);
        // Where it stands again already, ids are those of that place.
        if self.stopped(key).is_some_and(StoppedThread::moves) {
            self.forget_values(key);
        }
        if reply.command == "continue" {
            let body = Continued {
                all_threads_continued: false,
            };
            self.answer(reply, to_value(&body));
        } else {
            self.null(reply);
        }
    }

    pub(super) fn has_not_moved(
        &mut self,
        reply: &Reply,
        target: usize,
        stop: StopId,
        refusal: &Refusal,
    ) {
        self.set_motion(Self::key(target, stop), Motion::Stands);
        let refusal = Refusal::shown(refusal.text.clone());
        self.refuse(reply, &refusal);
    }

    pub(super) fn goto_targets(&mut self, arguments: &GotoTargets) -> Handled {
        let line =
            u32::try_from(arguments.line).map_err(|_out_of_range| Refusal::new("no such line"))?;
        self.goto_lines.push(line);
        Ok(Answer::Now(to_value(&body::GotoTargets {
            targets: vec![GotoTarget {
                id: self.goto_lines.len() as i64,
                label: format!("line {line}"),
                line: i64::from(line),
            }],
        })))
    }

    pub(super) fn exception_info(&mut self, arguments: &OfThread) -> Handled {
        let key = self.stop_of_thread(arguments.thread_id)?;
        let stop = self.stopped(key).map(|it| &it.stop);
        let Some((stop, exception, message, uncaught)) = stop.and_then(|stop| match &stop.why {
            StopReason::Raised {
                exception,
                message,
                uncaught,
                ..
            } => Some((stop, exception.clone(), message.clone(), *uncaught)),
            _ => None,
        }) else {
            return Err(Refusal::new("the thread did not stop at an exception"));
        };
        let mut stack_trace = String::new();
        for SourceLocation { func, file, lineno } in stop.frames.iter().rev() {
            stack_trace.push_str(&format!("  File \"{file}\", line {lineno}, in {func}\n"));
        }
        Ok(Answer::Now(to_value(&ExceptionInfo {
            exception_id: exception.clone(),
            description: message.clone(),
            break_mode: if uncaught { "unhandled" } else { "always" },
            details: ExceptionDetails {
                message,
                type_name: exception,
                stack_trace,
            },
        })))
    }

    /// A file as the editor finds it: by its path here, or by asking us for its text.
    pub(super) fn source_of(&mut self, target: usize, file: &str) -> body::Source {
        let local = self.config.paths.to_local(file);
        let is_file = local.starts_with('/');
        let name = local.rsplit('/').next().unwrap_or(&local).to_owned();
        let is_readable = is_file && (self.surroundings.is_readable)(&local);
        let source_reference = (!is_readable).then(|| {
            let is_it = |known: &(usize, String)| known.0 == target && known.1 == file;
            let at = self.sources.iter().position(is_it);
            let at = at.unwrap_or_else(|| {
                self.sources.push((target, file.to_owned()));
                self.sources.len() - 1
            });
            at as i64 + 1
        });
        body::Source {
            name,
            path: Some(local).filter(|_| is_file),
            source_reference,
            presentation_hint: None,
        }
    }
}

/// Code of the interpreter or of an installed package.
fn is_library(file: &str) -> bool {
    ["/site-packages/", "/dist-packages/", "/lib/python3"]
        .iter()
        .any(|part| file.contains(part))
        || file.starts_with("<frozen ")
}
