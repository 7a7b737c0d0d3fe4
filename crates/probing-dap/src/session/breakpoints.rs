//! Breakpoints of the editor: what it wants, and what became of it in each target.

use std::time::{Duration, Instant};

use probing_proto::dap::arguments::{
    DataBreakpoint, FunctionBreakpoint, SetBreakpoints, SetDataBreakpoints,
    SetExceptionBreakpoints, SetFunctionBreakpoints, SourceBreakpoint,
};
use probing_proto::dap::body::{self, BreakpointEvent, OutputEvent};
use probing_proto::message::Call;
use probing_proto::message::breakpoints::{
    Action, Breakpoint, BreakpointId, BreakpointLocation, SetBreakpoint, SourceLocation,
};

use super::probes::Purpose;
use super::wanted::{data_location, hits};
use super::{Answer, Handled, Link, Refusal, Reply, Session, to_value};

/// Filters of exceptions, by the ids that the editor sends.
pub(super) const RAISED: &str = "raised";
pub(super) const UNCAUGHT: &str = "uncaught";

/// Setting one looks for code in the live process, which takes the GIL.
const SET_TIMEOUT: Duration = Duration::from_secs(15);
/// How often breakpoints that wait for their code are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Breakpoints that are set together: a request names all of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Group {
    /// Of a file, by the editor's path.
    Source(String),
    Functions,
    Exceptions,
    /// Of the configuration: no request changes them.
    Configured,
    Data,
}

/// One breakpoint, as the editor wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Line(SourceBreakpoint),
    Function(FunctionBreakpoint),
    Raised(Option<String>),
    Uncaught,
    Data(DataBreakpoint),
}

/// What became of it in one target.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Asked,
    Set(Box<Breakpoint>),
    Refused(String),
}

#[derive(Debug)]
struct EditorBreakpoint {
    id: i64,
    group: Group,
    wanted: Wanted,
    /// By target.
    states: Vec<State>,
}

/// A request that is answered when all targets have.
#[derive(Debug)]
struct Batch {
    reply: Reply,
    ids: Vec<i64>,
    /// Targets that have not deleted yet what the request leaves out.
    deletions: usize,
}

#[derive(Debug, Default)]
pub(super) struct Breakpoints {
    last: i64,
    all: Vec<EditorBreakpoint>,
    batches: Vec<Batch>,
    look_at: Option<Instant>,
}

impl Breakpoints {
    /// When those that wait for their code are looked at.
    pub(super) fn looked_at_next(&self) -> Option<Instant> {
        self.look_at
    }

    /// Which of the editor's a target means, and whether it is one on a function.
    pub(super) fn hit(&self, target: usize, point: BreakpointId) -> Option<(i64, bool)> {
        let found = self.of_point(target, point)?;
        Some((found.id, found.group == Group::Functions))
    }

    fn of_point(&self, target: usize, point: BreakpointId) -> Option<&EditorBreakpoint> {
        self.all.iter().find(|it| it.point(target) == Some(point))
    }

    fn find_mut(&mut self, id: i64) -> Option<&mut EditorBreakpoint> {
        self.all.iter_mut().find(|it| it.id == id)
    }
}

impl EditorBreakpoint {
    fn point(&self, target: usize) -> Option<BreakpointId> {
        match self.states.get(target)? {
            State::Set(breakpoint) => Some(breakpoint.point),
            State::Asked | State::Refused(_) => None,
        }
    }

    fn is_asked(&self) -> bool {
        self.states.contains(&State::Asked)
    }

    /// Whether it may find its code later.
    fn waits(&self) -> bool {
        let waits = |state: &State| matches!(state, State::Set(it) if it.bound.is_empty());
        let is_code = matches!(self.wanted, Wanted::Line(_) | Wanted::Function(_));
        is_code && self.states.iter().any(waits)
    }
}

impl Session {
    pub(super) fn set_breakpoints(&mut self, reply: &Reply, arguments: SetBreakpoints) -> Handled {
        let reference = arguments.source.source_reference.unwrap_or(0);
        let by_reference = || {
            Some(
                self.sources
                    .get(usize::try_from(reference - 1).ok()?)?
                    .1
                    .clone(),
            )
        };
        let path = match by_reference() {
            Some(file) => self.config.paths.to_local(&file),
            None => (arguments.source.path.or(arguments.source.name))
                .ok_or_else(|| Refusal::new("no file is named"))?,
        };
        let wanted = arguments
            .breakpoints
            .into_iter()
            .map(Wanted::Line)
            .collect();
        Ok(self.set_group(reply, Group::Source(path), wanted))
    }

    pub(super) fn set_function_breakpoints(
        &mut self,
        reply: &Reply,
        arguments: SetFunctionBreakpoints,
    ) -> Answer {
        let wanted = arguments.breakpoints.into_iter().map(Wanted::Function);
        self.set_group(reply, Group::Functions, wanted.collect())
    }

    pub(super) fn set_data_breakpoints(
        &mut self,
        reply: &Reply,
        arguments: SetDataBreakpoints,
    ) -> Answer {
        let wanted = arguments.breakpoints.into_iter().map(Wanted::Data);
        self.set_group(reply, Group::Data, wanted.collect())
    }

    pub(super) fn set_exception_breakpoints(
        &mut self,
        reply: &Reply,
        arguments: SetExceptionBreakpoints,
    ) -> Handled {
        let plain = arguments.filters.into_iter().map(|filter| (filter, None));
        let options = arguments.filter_options.into_iter();
        let filters = plain.chain(options.map(|option| (option.filter_id, option.condition)));
        let mut wanted = Vec::new();
        for (filter, condition) in filters {
            match (filter.as_str(), condition.as_deref().map(str::trim)) {
                (RAISED, None | Some("")) => wanted.push(Wanted::Raised(None)),
                (RAISED, Some(classes)) => wanted.extend(raised(classes.split(','))),
                (UNCAUGHT, _) => wanted.push(Wanted::Uncaught),
                (filter, _) => return Err(Refusal::new(format!("no such filter: {filter}"))),
            }
        }
        Ok(self.set_group(reply, Group::Exceptions, wanted))
    }

    /// Those of the configuration, whatever the editor's list says.
    pub(super) fn set_configured_exceptions(&mut self) {
        let classes = self.config.exceptions.clone();
        let wanted = raised(classes.iter().map(String::as_str)).collect();
        self.change_group(&Group::Configured, wanted, &Purpose::Unheard);
    }

    /// Makes a group what the editor wants: what stays the same stays set, with its hits.
    fn set_group(&mut self, reply: &Reply, group: Group, wanted: Vec<Wanted>) -> Answer {
        let purpose = Purpose::Delete { seq: reply.seq };
        let (ids, deletions) = self.change_group(&group, wanted, &purpose);
        self.breakpoints.batches.push(Batch {
            reply: reply.clone(),
            ids,
            deletions,
        });
        self.answer_batches();
        Answer::Later
    }

    fn change_group(
        &mut self,
        group: &Group,
        wanted: Vec<Wanted>,
        purpose: &Purpose,
    ) -> (Vec<i64>, usize) {
        let all = std::mem::take(&mut self.breakpoints.all);
        let (mut before, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|it| it.group == *group);
        self.breakpoints.all = others;
        let mut ids = Vec::new();
        for wanted in wanted {
            let same = before
                .iter()
                .position(|it| it.wanted == wanted && !is_over(it));
            let breakpoint = match same {
                Some(at) => before.remove(at),
                None => self.new_breakpoint(group, wanted),
            };
            ids.push(breakpoint.id);
            self.breakpoints.all.push(breakpoint);
        }
        let deletions = self.delete(&before, purpose);
        (ids, deletions)
    }

    fn new_breakpoint(&mut self, group: &Group, wanted: Wanted) -> EditorBreakpoint {
        self.breakpoints.last += 1;
        let id = self.breakpoints.last;
        let request = self.request_for(group, &wanted);
        let mut states = Vec::new();
        for target in 0..self.targets.len() {
            states.push(match &request {
                _ if self.targets[target].is_gone => State::Refused("the process has ended".into()),
                Ok(request) => {
                    let (call, limit) = (Call::Arm(request.clone()), Some(SET_TIMEOUT));
                    self.ask_within(target, Link::Control, call, Purpose::Set { id }, limit);
                    State::Asked
                }
                Err(why) => State::Refused(why.clone()),
            });
        }
        EditorBreakpoint {
            id,
            group: group.clone(),
            wanted,
            states,
        }
    }

    fn request_for(&self, group: &Group, wanted: &Wanted) -> Result<SetBreakpoint, String> {
        let (place, condition, hit_condition, log) = match wanted {
            Wanted::Line(it) => {
                let Group::Source(path) = group else {
                    return Err("a line without a file".to_owned());
                };
                let place = BreakpointLocation::Line {
                    file: self.config.paths.to_remote(path),
                    line: u32::try_from(it.line).map_err(|_negative| "no such line")?,
                };
                (place, &it.condition, &it.hit_condition, &it.log_message)
            }
            Wanted::Function(it) => {
                let function = it.name.trim().trim_end_matches("()").to_owned();
                let place = BreakpointLocation::Function { function };
                (place, &it.condition, &it.hit_condition, &None)
            }
            Wanted::Raised(class) => {
                let exception = class.clone();
                (BreakpointLocation::Raise { exception }, &None, &None, &None)
            }
            Wanted::Uncaught => (BreakpointLocation::Uncaught, &None, &None, &None),
            Wanted::Data(it) => {
                let place = data_location(&it.data_id).ok_or("no data has this id")?;
                (place, &it.condition, &it.hit_condition, &None)
            }
        };
        let (hits, once) = hits(text_in(hit_condition.as_ref()))?;
        Ok(SetBreakpoint {
            place,
            condition: text_in(condition.as_ref()).map(str::to_owned),
            hits,
            once,
            action: match text_in(log.as_ref()) {
                Some(text) => Action::Log {
                    text: text.to_owned(),
                },
                None => Action::Stop,
            },
            stats: false,
            own: true,
            // Until the editor deletes it, or has gone.
            ttl_millis: Some(0),
            expression_millis: None,
            hold: self.config.hold,
        })
    }

    /// Gives how many targets were asked to.
    fn delete(&mut self, breakpoints: &[EditorBreakpoint], purpose: &Purpose) -> usize {
        let mut asked = 0;
        for target in 0..self.targets.len() {
            let points = breakpoints.iter().filter_map(|it| it.point(target));
            let points: Vec<BreakpointId> = points.collect();
            // None would mean all, also those of other clients.
            if !points.is_empty() && !self.targets[target].is_gone {
                let (call, limit) = (Call::Disarm { points }, Some(SET_TIMEOUT));
                self.ask_within(target, Link::Control, call, purpose.clone(), limit);
                asked += 1;
            }
        }
        asked
    }

    pub(super) fn breakpoints_are_deleted(&mut self, seq: i64) {
        let mut batches = self.breakpoints.batches.iter_mut();
        if let Some(batch) = batches.find(|batch| batch.reply.seq == seq) {
            batch.deletions = batch.deletions.saturating_sub(1);
        }
        self.answer_batches();
    }

    /// As the session ends.
    pub(super) fn delete_all_breakpoints(&mut self) {
        let all = std::mem::take(&mut self.breakpoints.all);
        self.breakpoints.look_at = None;
        self.delete(&all, &Purpose::Leave);
        for batch in &mut self.breakpoints.batches {
            batch.deletions = 0;
        }
        self.answer_batches();
    }

    pub(super) fn breakpoint_is_set(&mut self, target: usize, id: i64, breakpoint: Breakpoint) {
        let point = breakpoint.point;
        self.change_state(target, id, State::Set(Box::new(breakpoint)));
        if self.breakpoints.find_mut(id).is_none() {
            // The editor has deleted it meanwhile.
            let points = vec![point];
            let call = Call::Disarm { points };
            self.ask(target, Link::Control, call, Purpose::Unheard);
        }
    }

    pub(super) fn breakpoint_is_not_set(&mut self, target: usize, id: i64, why: &str) {
        self.change_state(target, id, State::Refused(why.to_owned()));
    }

    fn change_state(&mut self, target: usize, id: i64, state: State) {
        let Some(breakpoint) = self.breakpoints.find_mut(id) else {
            return;
        };
        if let Some(known) = breakpoint.states.get_mut(target) {
            *known = state;
        }
        if breakpoint.waits() && self.breakpoints.look_at.is_none() {
            self.breakpoints.look_at = Some(self.now + LOOK_INTERVAL);
        }
        self.answer_batches();
    }

    fn answer_batches(&mut self) {
        let is_whole = |batch: &Batch| {
            let mut of_batch = self.breakpoints.all.iter();
            batch.deletions == 0 && !of_batch.any(|it| batch.ids.contains(&it.id) && it.is_asked())
        };
        let (whole, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.breakpoints.batches)
            .into_iter()
            .partition(is_whole);
        self.breakpoints.batches = waiting;
        for batch in whole {
            let breakpoints = batch.ids.iter().map(|id| self.shown(*id)).collect();
            self.answer(&batch.reply, to_value(&body::Breakpoints { breakpoints }));
        }
    }

    /// As the editor is told of it.
    fn shown(&mut self, id: i64) -> body::Breakpoint {
        let gone = body::Breakpoint {
            id,
            verified: false,
            message: Some("deleted".to_owned()),
            source: None,
            line: None,
        };
        let Some(breakpoint) = self.breakpoints.find_mut(id) else {
            return gone;
        };
        let is_code = matches!(breakpoint.wanted, Wanted::Line(_) | Wanted::Function(_));
        let wanted_line = match &breakpoint.wanted {
            Wanted::Line(it) => Some(it.line),
            _ => None,
        };
        let states = breakpoint.states.clone();
        let (mut verified, mut place, mut messages) = (false, None, Vec::<String>::new());
        for (target, state) in states.iter().enumerate() {
            match state {
                State::Set(it) if it.bound.is_empty() && is_code => {
                    let waits = "waits: no such code is loaded yet".to_owned();
                    messages.push(it.note.clone().unwrap_or(waits));
                }
                State::Set(it) => {
                    verified = true;
                    place = place.or_else(|| Some((target, it.bound.first()?.clone())));
                    messages.extend(it.note.clone());
                }
                State::Refused(why) => messages.push(why.clone()),
                State::Asked => {}
            }
        }
        messages.dedup();
        let (source, line) = match place {
            Some((target, place)) if is_code => (
                Some(self.source_of(target, &place.file)),
                Some(i64::from(place.lineno)),
            ),
            _ => (None, wanted_line),
        };
        body::Breakpoint {
            id,
            verified,
            message: (!messages.is_empty()).then(|| messages.join("; ")),
            source,
            line,
        }
    }

    fn tell_breakpoint(&mut self, id: i64) {
        let breakpoint = self.shown(id);
        let event = BreakpointEvent {
            reason: "changed",
            breakpoint,
        };
        self.event("breakpoint", to_value(&event));
    }

    /// A target has deleted it by itself.
    pub(super) fn breakpoint_is_over(&mut self, target: usize, point: BreakpointId, why: &str) {
        if let Some(id) = self.breakpoints.of_point(target, point).map(|it| it.id) {
            self.change_state(target, id, State::Refused(why.to_owned()));
            self.tell_breakpoint(id);
        }
    }

    pub(super) fn look_at_breakpoints_if_due(&mut self) {
        if self
            .breakpoints
            .look_at
            .is_none_or(|look_at| look_at > self.now)
        {
            return;
        }
        self.breakpoints.look_at = None;
        let waits = |target: usize| {
            let waits = |it: &&EditorBreakpoint| it.waits() && it.point(target).is_some();
            self.breakpoints.all.iter().any(|it| waits(&it))
        };
        let targets: Vec<usize> = (0..self.targets.len())
            .filter(|target| !self.targets[*target].is_gone && waits(*target))
            .collect();
        for target in targets {
            self.ask(target, Link::Support, Call::Points, Purpose::Look);
            self.breakpoints.look_at = Some(self.now + LOOK_INTERVAL);
        }
    }

    /// What has found its code meanwhile is told.
    pub(super) fn look_at_breakpoints(&mut self, target: usize, points: Vec<Breakpoint>) {
        for point in points {
            let known = self.breakpoints.of_point(target, point.point);
            let Some(id) = known.filter(|it| it.waits()).map(|it| it.id) else {
                continue;
            };
            if !point.bound.is_empty() {
                self.change_state(target, id, State::Set(Box::new(point)));
                self.tell_breakpoint(id);
            }
        }
    }

    pub(super) fn logged(
        &mut self,
        target: usize,
        point: BreakpointId,
        text: &str,
        at: &SourceLocation,
    ) {
        // Those of other clients are theirs.
        if self.breakpoints.of_point(target, point).is_none() {
            return;
        }
        let label = match self.targets.as_slice() {
            [_] => String::new(),
            targets => format!("{}: ", targets[target].reached.label),
        };
        let event = OutputEvent {
            category: "console",
            output: format!("{label}{text}\n"),
            source: Some(self.source_of(target, &at.file)),
            line: Some(i64::from(at.lineno)),
        };
        self.event("output", to_value(&event));
    }
}

/// Deleted by the target; to be set again when the editor wants it again.
fn is_over(breakpoint: &EditorBreakpoint) -> bool {
    let is_refused = |state: &State| matches!(state, State::Refused(_));
    breakpoint.states.iter().all(is_refused)
}

fn raised<'a>(classes: impl Iterator<Item = &'a str>) -> impl Iterator<Item = Wanted> {
    classes
        .map(str::trim)
        .filter(|class| !class.is_empty())
        .map(|class| Wanted::Raised(Some(class.to_owned())))
}

fn text_in(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}
