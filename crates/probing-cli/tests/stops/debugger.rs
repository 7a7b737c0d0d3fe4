//! A target that does what it is told, and a client that debugs it.

use std::collections::VecDeque;
use std::fs;

use probing_proto::message::breakpoints::{
    Action, Breakpoint, BreakpointEvent, BreakpointLocation, SetBreakpoint, Step, StepCall, Stop,
    StopId, StopPolicy, StopReason,
};
use probing_proto::message::{Call, Eval, Event, FrameSelector, Outcome, Request, RequestId};
use probing_testkit::{Python, RawClient, Sandbox, Target};

const PROGRAM: &str = "debugged.py";

pub(crate) fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_probing"))
}

/// The line of the program that bears this mark.
pub(crate) fn line(mark: &str) -> u32 {
    line_of(PROGRAM, mark)
}

/// The line of a program that bears this mark.
pub(crate) fn line_of(program: &str, mark: &str) -> u32 {
    let path = probing_testkit::root().join("tests/targets").join(program);
    let source = fs::read_to_string(path).unwrap();
    let found = source
        .lines()
        .position(|line| line.ends_with(&format!("# @{mark}")));
    found.unwrap_or_else(|| panic!("no mark {mark}")) as u32 + 1
}

/// A program, and one who debugs it.
#[derive(Debug)]
pub(crate) struct Debugged {
    pub(crate) sandbox: Sandbox,
    pub(crate) target: Target,
    pub(crate) client: Client,
}

/// One who follows a process and drives its stops.
#[derive(Debug)]
pub(crate) struct Client {
    raw: RawClient,
    last: u64,
    news: VecDeque<BreakpointEvent>,
}

impl Debugged {
    pub(crate) fn start(python: &Python) -> Self {
        Self::start_program(python, PROGRAM)
    }

    pub(crate) fn start_program(python: &Python, program: &str) -> Self {
        let sandbox = sandbox();
        let target = sandbox.probed(python, program);
        let mut client = Client::new(&sandbox, &target);
        client.follow(true);
        Self {
            sandbox,
            target,
            client,
        }
    }

    /// Another client of the same target.
    pub(crate) fn another(&self) -> Client {
        Client::new(&self.sandbox, &self.target)
    }

    /// Has the main thread run a line of code, and does not wait for it.
    pub(crate) fn begin(&mut self, code: &str) {
        self.target.say(code);
    }

    /// What the code that was begun has printed, at its end.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.target.line() {
                line if line == "done" => return lines,
                line => lines.push(line),
            }
        }
    }

    /// What the main thread has for an expression.
    #[track_caller]
    pub(crate) fn told(&mut self, expression: &str) -> String {
        self.begin(&format!("print({expression})"));
        self.ended().join("\n")
    }

    /// The program is as if nobody had ever looked.
    #[track_caller]
    pub(crate) fn leaves_no_trace(mut self) {
        let tools = "__import__('sys').gettrace(), [t for t in range(6) if hasattr(__import__('sys'), 'monitoring') \
                     and __import__('sys').monitoring.get_tool(t)]";
        assert_eq!(self.told(tools), "None []");
        // Before 3.12 functions have other code while points are in them.
        let changed = "[it for it in (*vars(globals().get('Trainer', object)).values(), *globals().values()) if hasattr(it, '__code__') and \
                       any(hasattr(constant, '__self__') for constant in it.__code__.co_consts)]";
        assert_eq!(self.told(changed), "[]");
        let ended = self.target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    }
}

/// Something that does nothing but count, at a line with a mark.
pub(crate) fn at(mark: &str) -> SetBreakpoint {
    arm(BreakpointLocation::Line {
        file: PROGRAM.to_owned(),
        line: line(mark),
    })
}

pub(crate) fn in_function(function: &str) -> SetBreakpoint {
    arm(BreakpointLocation::Function {
        function: function.to_owned(),
    })
}

pub(crate) fn arm(place: BreakpointLocation) -> SetBreakpoint {
    SetBreakpoint {
        place,
        condition: None,
        hits: 1,
        once: false,
        action: Action::Count,
        stats: false,
        own: false,
        ttl_millis: None,
        expression_millis: None,
        hold: StopPolicy::default(),
    }
}

/// One that stops.
pub(crate) fn stop(arm: SetBreakpoint) -> SetBreakpoint {
    SetBreakpoint {
        action: Action::Stop,
        ..arm
    }
}

/// One that logs.
pub(crate) fn log(arm: SetBreakpoint, text: &str) -> SetBreakpoint {
    let text = text.to_owned();
    SetBreakpoint {
        action: Action::Log { text },
        ..arm
    }
}

pub(crate) fn when(condition: &str, arm: SetBreakpoint) -> SetBreakpoint {
    SetBreakpoint {
        condition: Some(condition.to_owned()),
        ..arm
    }
}

/// The line that a thread stopped at, by its mark.
#[track_caller]
pub(crate) fn check_at(stop: &Stop, mark: &str) {
    assert_eq!(stop.frames[0].lineno, line(mark), "not at {mark}: {stop:?}");
}

impl Client {
    pub(crate) fn new(sandbox: &Sandbox, target: &Target) -> Self {
        Self {
            raw: RawClient::of(sandbox, target),
            last: 0,
            news: VecDeque::new(),
        }
    }

    pub(crate) fn send(&mut self, call: Call) -> RequestId {
        self.last += 1;
        let id = RequestId(self.last);
        self.raw.send(&Request { id, call });
        id
    }

    /// Asks and takes the answer; news that come meanwhile are kept.
    #[track_caller]
    pub(crate) fn ask(&mut self, call: Call) -> Event {
        let id = self.send(call);
        self.answer(id)
    }

    #[track_caller]
    pub(crate) fn answer(&mut self, id: RequestId) -> Event {
        loop {
            let message = self.raw.receive().expect("an answer");
            match message.event {
                Event::News(news) => self.news.push_back(news),
                Event::Output { .. } => {}
                event if message.id == Some(id) => return event,
                _ => {}
            }
        }
    }

    /// The next answer to anything.
    #[track_caller]
    pub(crate) fn any_answer(&mut self) -> (RequestId, Event) {
        loop {
            let message = self.raw.receive().expect("an answer");
            match (message.id, message.event) {
                (_, Event::News(news)) => self.news.push_back(news),
                (Some(id), event) => return (id, event),
                (None, _) => {}
            }
        }
    }

    /// Waits until evaluated code has printed something.
    #[track_caller]
    pub(crate) fn printed(&mut self, id: RequestId) {
        loop {
            let message = self.raw.receive().expect("output");
            match message.event {
                Event::News(news) => self.news.push_back(news),
                Event::Output { .. } if message.id == Some(id) => return,
                _ => {}
            }
        }
    }

    /// The next news that are wanted; others are let go by.
    #[track_caller]
    pub(crate) fn news<T>(&mut self, wanted: impl Fn(BreakpointEvent) -> Option<T>) -> T {
        loop {
            while let Some(news) = self.news.pop_front() {
                if let Some(found) = wanted(news) {
                    return found;
                }
            }
            if let Event::News(news) = self.raw.receive().expect("news").event {
                self.news.push_back(news);
            }
        }
    }

    /// All news that have come by now.
    pub(crate) fn all_news(&mut self) -> Vec<BreakpointEvent> {
        self.news.drain(..).collect()
    }

    #[track_caller]
    pub(crate) fn follow(&mut self, driving: bool) -> Vec<Stop> {
        match self.ask(Call::Follow { driving }) {
            Event::Stops { stops } => stops,
            event => panic!("{event:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn arm(&mut self, arm: SetBreakpoint) -> Breakpoint {
        match self.ask(Call::Arm(arm)) {
            Event::Armed(point) => point,
            event => panic!("{event:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn refused(&mut self, call: Call) -> String {
        match self.ask(call) {
            Event::Failed(failure) => failure.error,
            event => panic!("{event:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn points(&mut self) -> Vec<Breakpoint> {
        match self.ask(Call::Points) {
            Event::Points { points } => points,
            event => panic!("{event:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn disarm_all(&mut self) -> Vec<Breakpoint> {
        match self.ask(Call::Disarm { points: Vec::new() }) {
            Event::Points { points } => points,
            event => panic!("{event:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn stops(&mut self) -> Vec<Stop> {
        match self.ask(Call::Stops) {
            Event::Stops { stops } => stops,
            event => panic!("{event:?}"),
        }
    }

    /// Where a thread stops next.
    #[track_caller]
    pub(crate) fn stopped(&mut self) -> Stop {
        self.news(|news| match news {
            BreakpointEvent::Stopped { stop } => Some(stop),
            _ => None,
        })
    }

    #[track_caller]
    pub(crate) fn step(&mut self, id: StopId, step: Step) {
        let call = Call::Step(StepCall {
            stop: id,
            step,
            my_code: false,
        });
        assert_eq!(self.ask(call), Event::Done);
    }

    /// Takes a step and checks where it ends.
    #[track_caller]
    pub(crate) fn step_to(&mut self, id: StopId, step: Step, mark: &str) -> Stop {
        self.step(id, step);
        let stopped = self.stopped();
        assert_eq!((stopped.stop, &stopped.why), (id, &StopReason::Step));
        check_at(&stopped, mark);
        stopped
    }

    /// What a stopped thread has for an expression, in one of its frames.
    #[track_caller]
    pub(crate) fn value(&mut self, stop: StopId, frame: u32, code: &str) -> String {
        match self.evaluated(stop, frame, code) {
            Outcome::Finished { value } => value.unwrap_or_default(),
            outcome => panic!("{outcome:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn evaluated(&mut self, stop: StopId, frame: u32, code: &str) -> Outcome {
        let id = self.begin_eval(stop, frame, code);
        match self.answer(id) {
            Event::Evaluated(evaluated) => evaluated.outcome,
            event => panic!("{event:?}"),
        }
    }

    pub(crate) fn begin_eval(&mut self, stop: StopId, frame: u32, code: &str) -> RequestId {
        self.send(Call::Eval(Eval {
            stop: Some(stop),
            frame: Some(FrameSelector::from(frame)),
            ..Eval::of(code)
        }))
    }
}
