//! The debugger's session: its stopped threads, the selected one, and the commands on it.

mod frame;

use std::io::{self, Write as _};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use probing_client::ClientError;
use probing_proto::message::breakpoints::{
    Action, Breakpoint, BreakpointEvent, BreakpointId, BreakpointLocation, Controller,
    SetBreakpoint, SourceLocation, Step, StepCall, Stop, StopId, StopPolicy,
};
use probing_proto::message::completion::Scope;

use crate::arguments::CodeLocation;
use crate::commands::TargetArgs;
use crate::commands::breakpoints::text;
use crate::commands::debug::commands::{self, Order};
use crate::commands::debug::show;
use crate::commands::repl;
use crate::commands::repl::session::{Session, say};
use crate::exit::{self, Status};
use crate::terminal;

/// How soon Ctrl-C is noticed while nothing stops.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Lines around the current one when a thread has stopped.
const CONTEXT_LINES: u32 = 2;

/// What comes after an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Input,
    Leave,
}

pub(super) struct Debugger<'a> {
    pub(super) session: Session<'a>,
    /// In the order in which they stopped.
    stops: Vec<Stop>,
    /// The one that is looked at.
    current: Option<StopId>,
    /// Which of its frames; 0 is the innermost.
    frame: usize,
    /// It was resumed, and shall stop again.
    running: bool,
    /// Armed here, and to be disarmed in the end.
    armed: Vec<BreakpointId>,
    /// Shown at every stop, with the text that was shown last.
    displayed: Vec<(String, String)>,
    /// The line behind those that were listed.
    listed: Option<u32>,
    last: Option<Order>,
}

impl<'a> Debugger<'a> {
    pub(super) fn open(aim: &'a TargetArgs) -> anyhow::Result<Self> {
        let mut debugger = Self {
            session: Session::open(aim)?,
            stops: Vec::new(),
            current: None,
            frame: 0,
            running: false,
            armed: Vec::new(),
            displayed: Vec::new(),
            listed: None,
            last: None,
        };
        debugger.follow()?;
        debugger.look_at_first()?;
        Ok(debugger)
    }

    /// Hears what stops, and drives what nobody else does.
    fn follow(&mut self) -> Result<(), ClientError> {
        let link = Arc::clone(&self.session.link);
        let hang_up = {
            let mut probe = link.probe();
            self.stops = probe.follow(true)?;
            probe.hang_up()
        };
        let gone = Arc::clone(&self.session.gone);
        // What comes while somebody types is said at once.
        thread::spawn(move || {
            loop {
                hang_up.wait_for_word();
                match link.probe().hear() {
                    Ok(true) => gone.tell(),
                    Ok(false) if hang_up.is_ours() => break,
                    Ok(false) => {}
                    Err(_) => break,
                }
            }
        });
        Ok(())
    }

    pub(super) fn arm(&mut self, arm: SetBreakpoint) -> anyhow::Result<()> {
        // However this ends, nothing is left armed.
        let arm = SetBreakpoint { own: true, ..arm };
        let point = self.session.link.probe().arm(arm)?;
        say(&text::armed(&point))?;
        self.armed.push(point.point);
        Ok(())
    }

    /// What the prompt says in front of its mark.
    pub(super) fn prompt(&self) -> String {
        let pid = self.session.link.probe().hello().pid;
        let Some(stop) = self.stop() else {
            return format!("{pid} (runs)");
        };
        let place = self.spot().map_or_else(String::new, show::short);
        let ends = text::duration(stop.ends_in_millis);
        match stop.driver {
            Controller::Another => format!("{pid} {place} (observing)"),
            _ => format!("{pid} {place} ({ends})"),
        }
    }

    /// Until a thread that is looked at is stopped; at once when there is nothing to wait for.
    /// Leaves when `is_over` says that nobody is there for it.
    pub(super) fn wait(
        &mut self,
        is_over: &mut dyn FnMut() -> io::Result<bool>,
    ) -> anyhow::Result<Next> {
        self.tell_news()?;
        if self.stop().is_some() && !self.running {
            return Ok(Next::Input);
        }
        if !self.running {
            let points = self.session.link.probe().points()?;
            let stopping: Vec<&Breakpoint> = points
                .iter()
                .filter(|point| point.request.action == Action::Stop && !point.over)
                .collect();
            if stopping.is_empty() && self.last.is_none() {
                say("no breakpoint is set that stops: b PLACE sets one, c waits, h helps")?;
                return Ok(Next::Input);
            }
            if self.last != Some(Order::Continue) && self.last.is_some() {
                return Ok(Next::Input);
            }
            // Those of others matter when there are none of ours.
            let is_meant =
                |point: &&Breakpoint| self.armed.is_empty() || self.armed.contains(&point.point);
            let meant = stopping.into_iter().filter(is_meant);
            let places: Vec<String> = meant.map(text::name).collect();
            let places = if places.is_empty() {
                "a stop".to_owned()
            } else {
                places.join(", ")
            };
            say(&format!("waiting for {places}; Ctrl-C exits"))?;
        }
        self.session.take_press();
        let waited_for = self.armed.clone();
        loop {
            let news = self
                .session
                .link
                .probe()
                .next_news(Some(Instant::now() + POLL_INTERVAL))?;
            match news {
                Some(news) => self.take_news(&news)?,
                None if self.session.take_press() => return Ok(Next::Leave),
                // A step is worth seeing the end of.
                None if !self.running && is_over()? => return Ok(Next::Leave),
                None => {}
            }
            if self.stop().is_some() && !self.running {
                return Ok(Next::Input);
            }
            if self.have_ended(&waited_for)? {
                say("no breakpoint is left to wait for: b PLACE sets one, c waits, h helps")?;
                return Ok(Next::Input);
            }
        }
    }

    /// Whether what was armed here is over, and nothing stops because of it. One that is met once is over when it stops a
    /// thread, which is heard of a moment later.
    fn have_ended(&mut self, points: &[BreakpointId]) -> anyhow::Result<bool> {
        if self.running || points.is_empty() || !self.armed.is_empty() {
            return Ok(false);
        }
        let known = self.session.link.probe().points()?;
        let stops_now =
            |it: &Breakpoint| points.contains(&it.point) && it.request.once && it.fired > 0;
        Ok(!known.iter().any(stops_now))
    }

    /// Says what was heard meanwhile.
    pub(super) fn tell_news(&mut self) -> anyhow::Result<()> {
        loop {
            let news = {
                let mut probe = self.session.link.probe();
                if probe.hear()? {
                    probe.next_news(Some(Instant::now() + POLL_INTERVAL))?
                } else {
                    None
                }
            };
            match news {
                Some(news) => self.take_news(&news)?,
                None => return Ok(()),
            }
        }
    }

    fn take_news(&mut self, news: &BreakpointEvent) -> anyhow::Result<()> {
        match news {
            BreakpointEvent::Stopped { stop } => {
                self.put(stop.clone());
                if self.current.is_none() || self.current == Some(stop.stop) {
                    self.look_at(stop.stop)?;
                } else {
                    let (number, place) = (stop.stop.0, text::innermost(stop));
                    say(&format!(
                        "{} also stopped in {place}; `stop {number}` switches to it",
                        stop.thread_name
                    ))?;
                }
            }
            BreakpointEvent::WentOn { stop, because } => {
                let ours = self.current == Some(*stop);
                self.stops.retain(|known| known.stop != *stop);
                if ours {
                    let because = if self.running {
                        "the thread did not stop again"
                    } else {
                        text::because(*because)
                    };
                    say(&format!("thread resumed: {because}"))?;
                    self.running = false;
                    self.look_at_first()?;
                }
            }
            BreakpointEvent::Driven { stop, driver } => {
                let known = self.stops.iter_mut().find(|known| known.stop == *stop);
                let before = known.map(|known| std::mem::replace(&mut known.driver, *driver));
                let is_new = before.is_some_and(|before| before != *driver);
                if self.current == Some(*stop) && is_new {
                    match driver {
                        Controller::You => say("you control it now")?,
                        Controller::Another => {
                            say("another client controls it now; `take` takes control")?;
                        }
                        Controller::Nobody => {}
                    }
                }
            }
            BreakpointEvent::Logged { text, at, .. } => {
                say(&format!("{}: {text}", show::short(at)))?;
            }
            BreakpointEvent::Changed {
                name, old, new, at, ..
            } => {
                let change = text::change(name, old, new);
                say(&format!("{}: {change}", show::short(at)))?;
            }
            BreakpointEvent::Disarmed { point, reason } if self.armed.contains(point) => {
                self.armed.retain(|armed| armed != point);
                say(&format!("breakpoint {} deleted: {reason}", point.0))?;
            }
            BreakpointEvent::Disarmed { .. } => {}
        }
        Ok(())
    }

    fn put(&mut self, stop: Stop) {
        match self.stops.iter_mut().find(|known| known.stop == stop.stop) {
            Some(known) => *known = stop,
            None => self.stops.push(stop),
        }
    }

    fn stop(&self) -> Option<&Stop> {
        self.stops
            .iter()
            .find(|stop| Some(stop.stop) == self.current)
    }

    /// The chosen frame.
    fn spot(&self) -> Option<&SourceLocation> {
        self.stop()?.frames.get(self.frame)
    }

    /// Any that is stopped: first one that is driven from here.
    fn look_at_first(&mut self) -> anyhow::Result<()> {
        let mine = self
            .stops
            .iter()
            .find(|stop| stop.driver == Controller::You);
        if let Some(stop) = mine.or(self.stops.first()).map(|stop| stop.stop) {
            return self.look_at(stop);
        }
        self.current = None;
        self.session.link.go_to_stop(None, Scope::default());
        Ok(())
    }

    /// From here on this one is looked at. Shows where it is.
    fn look_at(&mut self, stop: StopId) -> anyhow::Result<()> {
        self.current = Some(stop);
        self.running = false;
        self.go_to_frame(0);
        let Some(stop) = self.stop().cloned() else {
            return Ok(());
        };
        writeln!(terminal::stdout(), "{}", show::head(&stop, self.frame))?;
        let is_step = matches!(
            stop.why,
            probing_proto::message::breakpoints::StopReason::Step
        );
        self.show_source(if is_step { 0 } else { CONTEXT_LINES })?;
        if stop.driver == Controller::Another {
            say("another client controls it: observe, or `take` control")?;
        }
        self.show_displayed()
    }

    fn go_to_frame(&mut self, frame: usize) {
        self.frame = frame;
        self.listed = None;
        let thread = self.stop().map(|stop| stop.thread.to_string());
        let scope = Scope {
            thread,
            frame: Some(frame as u32),
        };
        self.session.link.go_to_stop(self.current, scope);
    }

    /// Does what was typed.
    pub(super) fn take(&mut self, text: &str, at_terminal: bool) -> anyhow::Result<Next> {
        let order = match Order::of(text) {
            Order::Again => match &self.last {
                Some(order) if order.is_repeatable() => order.clone(),
                _ => return Ok(Next::Input),
            },
            order => order,
        };
        self.last = Some(order.clone());
        match order {
            Order::Quit => return Ok(Next::Leave),
            Order::Interact if at_terminal => drop(repl::at_terminal(&mut self.session)?),
            Order::Interact => {
                say(
                    "a prompt needs a terminal; here, any line that is no command runs as Python in the frame",
                )?;
            }
            order => self.obey(order)?,
        }
        if !self.session.link.probe().is_following() {
            // Code was left behind, and with it the connection.
            self.follow()?;
        }
        self.refresh()?;
        Ok(Next::Input)
    }

    fn obey(&mut self, order: Order) -> anyhow::Result<()> {
        match order {
            Order::Next => self.step(Step::Over),
            Order::Step => self.step(Step::Into),
            Order::Return => self.step(Step::Return {
                frame: self.frame as u32,
            }),
            Order::Until(line) => {
                let here = self.spot().map_or(0, |spot| spot.lineno);
                let line = line.unwrap_or(here + 1);
                self.step(Step::Until { line })
            }
            Order::Continue if self.current.is_none() => Ok(()),
            Order::Continue => self.step(Step::Continue),
            Order::Jump(line) => self.jump(line),
            Order::Up(count) => self.climb(count as usize, true),
            Order::Down(count) => self.climb(count as usize, false),
            Order::Where => {
                let frames = self.looked_at()?.frames.clone();
                write!(terminal::stdout(), "{}", show::stack(&frames, self.frame))?;
                Ok(())
            }
            Order::List(lines) => self.list(lines),
            Order::LongList => self.show_function(),
            Order::Break { at: None, .. } => self.show_points(),
            Order::Break {
                at: Some(at),
                condition,
                once,
            } => self.set(&at, condition, once),
            Order::Clear(numbers) => self.clear(numbers),
            Order::Print(code) => self.print(code),
            Order::Pretty(code) => self.run(format!("__import__('pprint').pprint(({code}))")),
            Order::WhatIs(code) => self.run(format!("__import__('builtins').type(({code}))")),
            Order::Arguments => self.arguments(),
            Order::Display(None) => self.show_displayed(),
            Order::Display(Some(code)) => {
                self.displayed.push((code, String::new()));
                self.show_displayed()
            }
            Order::Undisplay(code) => {
                let is_meant = |shown: &str| code.as_ref().is_none_or(|code| code == shown);
                self.displayed.retain(|(shown, _)| !is_meant(shown));
                Ok(())
            }
            Order::Stops => {
                for stop in &self.stops {
                    writeln!(terminal::stdout(), "{}", text::stop(stop))?;
                }
                Ok(())
            }
            Order::GoTo(number) => self.go_to(StopId(number)),
            Order::Take => self.drive(),
            Order::Help(about) => {
                match commands::help(about.as_deref()) {
                    Ok(text) => write!(terminal::stdout(), "{text}")?,
                    Err(why) => say(&why)?,
                }
                Ok(())
            }
            Order::Code(code) => self.run(code),
            Order::Wrong(why) => Ok(say(&why)?),
            // Done by who called.
            Order::Again | Order::Interact | Order::Quit => Ok(()),
        }
    }

    fn looked_at(&self) -> anyhow::Result<&Stop> {
        match self.stop() {
            Some(stop) => Ok(stop),
            None => bail!("nothing is stopped: c waits for the next stop"),
        }
    }

    /// Has the thread that is looked at move.
    fn order(&self, step: Step) -> anyhow::Result<StopId> {
        let call = StepCall {
            stop: self.looked_at()?.stop,
            step,
            my_code: false,
        };
        self.session.link.probe().step(call.clone())?;
        Ok(call.stop)
    }

    fn step(&mut self, step: Step) -> anyhow::Result<()> {
        let moved = self.order(step)?;
        if step == Step::Continue {
            self.stops.retain(|known| known.stop != moved);
            self.look_at_first()?;
        } else {
            self.running = true;
        }
        Ok(())
    }

    /// The thread stays stopped, elsewhere.
    fn jump(&mut self, line: u32) -> anyhow::Result<()> {
        self.order(Step::Jump { line })?;
        // It is told as if it had stopped again.
        self.running = true;
        Ok(())
    }

    fn set(&mut self, at: &str, condition: Option<String>, once: bool) -> anyhow::Result<()> {
        let place = match (at.parse::<u32>(), self.spot()) {
            (Ok(line), Some(spot)) => BreakpointLocation::Line {
                file: spot.file.clone(),
                line,
            },
            _ => match at.parse() {
                Ok(CodeLocation(place)) => place,
                Err(why) => return Ok(say(&why)?),
            },
        };
        self.arm(SetBreakpoint {
            place,
            condition,
            hits: 1,
            once,
            action: Action::Stop,
            stats: false,
            own: false,
            ttl_millis: None,
            expression_millis: None,
            hold: StopPolicy::default(),
        })
    }

    fn show_points(&self) -> anyhow::Result<()> {
        let points = self.session.link.probe().points()?;
        if points.is_empty() {
            say("no breakpoints are set")?;
        }
        for point in &points {
            writeln!(terminal::stdout(), "{}", text::listed(point))?;
        }
        Ok(())
    }

    fn clear(&mut self, numbers: Vec<u32>) -> anyhow::Result<()> {
        let points = if numbers.is_empty() {
            self.armed.clone()
        } else {
            numbers.into_iter().map(BreakpointId).collect()
        };
        if points.is_empty() {
            return Ok(say(
                "no breakpoints were set here; cl N deletes those of other clients",
            )?);
        }
        let gone = self.session.link.probe().disarm(points.clone())?;
        self.armed.retain(|armed| !points.contains(armed));
        for point in points {
            match gone.iter().find(|gone| gone.point == point) {
                Some(gone) => say(&text::disarmed(gone))?,
                None => say(&format!(
                    "no breakpoint or watch has this number: {}",
                    point.0
                ))?,
            }
        }
        Ok(())
    }

    fn run(&mut self, code: String) -> anyhow::Result<()> {
        self.session.run(code)?;
        Ok(())
    }

    fn go_to(&mut self, stop: StopId) -> anyhow::Result<()> {
        if !self.stops.iter().any(|known| known.stop == stop) {
            bail!("no stop has this number: {}; `stops` shows them", stop.0);
        }
        self.look_at(stop)
    }

    fn drive(&mut self) -> anyhow::Result<()> {
        let stop = self.looked_at()?;
        if stop.driver == Controller::You {
            return Ok(say("you control it already")?);
        }
        let stop = stop.stop;
        self.session.link.probe().drive(stop, true)?;
        // Who drives it is said in the order in which that changed.
        self.tell_news()
    }

    /// What is known of the stops by now: deadlines move with every request.
    fn refresh(&mut self) -> anyhow::Result<()> {
        if self.running {
            return Ok(());
        }
        let stops = self.session.link.probe().stops()?;
        // One that is new or gone is news, which come by themselves.
        for stop in stops {
            if let Some(known) = self.stops.iter_mut().find(|known| known.stop == stop.stop) {
                // So is who drives it.
                let driver = known.driver;
                *known = Stop { driver, ..stop };
            }
        }
        Ok(())
    }

    /// Resumes the program and deletes the breakpoints that were set here.
    pub(super) fn leave(&mut self) -> anyhow::Result<Status> {
        let mut probe = self.session.link.probe();
        if !self.armed.is_empty() {
            let gone = probe.disarm(std::mem::take(&mut self.armed))?;
            for point in &gone {
                say(&text::disarmed(point))?;
            }
        }
        let stops = probe.stops()?;
        let mine = stops.iter().filter(|stop| stop.driver == Controller::You);
        // One that is on its way must not stop at the end of its step.
        let on_its_way = self.current.filter(|_| self.running);
        for stop in mine.map(|stop| stop.stop).chain(on_its_way) {
            match probe.release(vec![stop]) {
                // It has resumed by itself meanwhile.
                Err(ClientError::NotDone(_)) => {}
                released => drop(released?),
            }
        }
        say("the program runs")?;
        Ok(exit::OK)
    }
}
