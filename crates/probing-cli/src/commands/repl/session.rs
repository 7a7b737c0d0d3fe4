//! The session of a prompt: runs code, interrupts it, and notices the end of the target.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use probing_client::{
    Canceller, ClientError, DisconnectWatcher, EvalEnd, Probe, StackQuery, Stacks, Target,
};
use probing_engine::EngineError;
use probing_proto::message::breakpoints::StopId;
use probing_proto::message::completion::{Complete, Completion, CompletionKind, Describe, Scope};
use probing_proto::message::threads::ThreadSelector;
use probing_proto::message::{Eval, Evaluated, FrameSelector, Outcome};
use probing_proto::report::BacktraceReport;

use crate::arguments::QueryFormat;
use crate::commands::query::{QueryRunner, Running as Queries};
use crate::commands::repl::editor::ReadInterrupt;
use crate::commands::repl::input::Input;
use crate::commands::repl::magic::{self, Magic};
use crate::commands::repl::{path, show};
use crate::commands::{TargetArgs, backtrace, eval};
use crate::errors;
use crate::terminal;
use probing_proto::text::visible;

/// The timeout of a question that a user asked.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Code that was interrupted has this long to end before more is said.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often it is noted where the target is, so that its last place is known when it dies.
const GLANCE: Duration = Duration::from_secs(1);

/// The connection to the probe, which the editor's completion uses between evals.
#[derive(Debug)]
pub(in crate::commands) struct Link {
    probe: Mutex<Probe>,
    /// Where code runs: on this thread, or in a frame of it.
    scope: Mutex<Scope>,
    /// The stop whose thread runs it, at a breakpoint.
    stop: Mutex<Option<StopId>>,
}

impl Link {
    pub(super) fn new(probe: Probe) -> Self {
        Self {
            probe: Mutex::new(probe),
            scope: Mutex::default(),
            stop: Mutex::default(),
        }
    }

    pub(in crate::commands) fn probe(&self) -> MutexGuard<'_, Probe> {
        self.probe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn scope(&self) -> Scope {
        let scope = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        scope.clone()
    }

    fn stop(&self) -> Option<StopId> {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on code runs on the thread of that stop, in that frame; or where it always does.
    pub(in crate::commands) fn go_to_stop(&self, stop: Option<StopId>, scope: Scope) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = stop;
        self.move_to(scope);
    }

    fn move_to(&self, scope: Scope) {
        *self.scope.lock().unwrap_or_else(PoisonError::into_inner) = scope;
    }

    /// What there is in time: a key press that cannot be answered gives nothing.
    pub(super) fn complete(&self, wanted: Complete, budget: Duration) -> Vec<Completion> {
        self.probe().complete(wanted, budget).unwrap_or_default()
    }
}

/// What comes after an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Input,
    Leave,
}

#[derive(Debug)]
pub(in crate::commands) struct Session<'a> {
    aim: &'a TargetArgs,
    target: Target,
    pub(in crate::commands) link: Arc<Link>,
    running: Running,
    last_place: LastLocation,
    pub(in crate::commands) gone: Arc<ReadInterrupt>,
    /// Made by the first query.
    asker: Option<QueryRunner<'a>>,
    queries: Queries,
}

/// Cut to the terminal.
const AS_TABLE: QueryFormat = QueryFormat {
    json: false,
    csv: false,
    arrow: false,
    parquet: None,
    wide: false,
};

impl<'a> Session<'a> {
    /// Connects, and begins to watch the target.
    pub(in crate::commands) fn open(aim: &'a TargetArgs) -> anyhow::Result<Self> {
        let target = aim.target()?;
        let probe = aim.connect()?;
        let (gone, last_place) = <(Arc<ReadInterrupt>, LastLocation)>::default();
        watch(probe.hang_up(), &target, &gone, &last_place);
        let queries = Queries::default();
        Ok(Self {
            aim,
            target,
            link: Arc::new(Link::new(probe)),
            running: Running::interruptible(queries.clone())?,
            last_place,
            gone,
            asker: None,
            queries,
        })
    }

    /// What the prompt says in front of its mark.
    pub(super) fn place(&self) -> String {
        let hello = self.link.probe().hello().clone();
        let mut place = match hello.rank {
            Some(rank) => format!("rank {rank} ({})", hello.pid),
            None => hello.pid.to_string(),
        };
        let scope = self.link.scope();
        match (self.link.stop(), &scope.thread) {
            (Some(stop), _) => place.push_str(&format!(" stop {}", stop.0)),
            (None, Some(thread)) => place.push_str(&format!(" thread {thread}")),
            (None, None) => {}
        }
        if let Some(frame) = scope.frame {
            place.push_str(&format!(" frame {frame}"));
        }
        place
    }

    pub(super) fn greeting(&self) -> String {
        let probe = self.link.probe();
        let hello = probe.hello();
        if let Some(stop) = self.link.stop() {
            let frame = self.link.scope().frame.unwrap_or(0);
            return format!(
                "Python in frame {frame} of stop {}. Ctrl-D returns.",
                stop.0
            );
        }
        format!(
            "Python {} in process {}. Code runs in its live __main__. %help for help, Ctrl-D to exit.",
            visible::line(&hello.python),
            hello.pid
        )
    }

    /// Does what was typed, and shows what came of it.
    pub(super) fn take(&mut self, text: &str) -> anyhow::Result<Next> {
        let next = self.done(text);
        self.queries.renew();
        next
    }

    fn done(&mut self, text: &str) -> anyhow::Result<Next> {
        match Input::of(text) {
            Input::Empty => {}
            Input::Code(code) => drop(self.run(code)?),
            Input::Question(name) => self.describe(&name)?,
            Input::Unknown(why) => say(&why)?,
            Input::Magic(Magic::Leave) => return Ok(Next::Leave),
            Input::Magic(magic) => self.obey(magic)?,
        }
        Ok(Next::Input)
    }

    fn obey(&mut self, magic: Magic) -> anyhow::Result<()> {
        match magic {
            Magic::Backtrace(words) => return self.backtrace(&words),
            Magic::Threads => {
                let report = self.stacks()?;
                let chosen = self.link.scope().thread.map(ThreadSelector::from);
                write!(
                    terminal::stdout(),
                    "{}",
                    show::threads(&report, chosen.as_ref())
                )?;
            }
            Magic::Frame(frame) => {
                let thread = self.link.scope().thread;
                self.move_to(Scope { thread, frame })?;
            }
            Magic::Thread(thread) => {
                let frame = None;
                self.move_to(Scope { thread, frame })?;
            }
            Magic::Query(sql) => return self.query(&sql),
            Magic::Time(code) => {
                if let Some(took) = self.run(code)? {
                    say(&format!("took {took:.3?}"))?;
                }
            }
            Magic::Who => self.who()?,
            Magic::Help => write!(terminal::stdout(), "{}", magic::help())?,
            Magic::Leave => {}
        }
        Ok(())
    }

    /// Runs code and shows what came of it. How long it took, if it ended.
    pub(in crate::commands) fn run(&mut self, code: String) -> anyhow::Result<Option<Duration>> {
        let Some(evaluated) = self.evaluate(code)? else {
            return Ok(None);
        };
        let took = Duration::from_nanos(evaluated.took_nanos);
        show::outcome(&evaluated)?;
        let ended = !matches!(evaluated.outcome, Outcome::SyntaxError { .. });
        Ok(ended.then_some(took))
    }

    /// Runs code until it ends, or is left behind.
    pub(in crate::commands) fn evaluate(
        &mut self,
        code: String,
    ) -> anyhow::Result<Option<Evaluated>> {
        let Scope { thread, frame } = self.link.scope();
        let stop = self.link.stop();
        let request = Eval {
            code,
            // A stop says whose frame it is.
            thread: thread.filter(|_| stop.is_none()),
            frame: frame.map(FrameSelector::from),
            stop,
            max_output: None,
            keep: true,
            storage: false,
        };
        let link = Arc::clone(&self.link);
        let mut probe = link.probe();
        let started = probe.start_eval(request)?;
        self.running.begin(started.clone());
        let target = &self.target;
        let end = probe.finish_eval(&started, None, |news| eval::show_news(target, news));
        let abandoned = self.running.end();
        let evaluated = match end {
            Ok(EvalEnd::Evaluated(evaluated) | EvalEnd::TimedOut(evaluated)) => evaluated,
            Ok(EvalEnd::Stuck(progress)) => {
                say(&self.target.stuck(progress).reason)?;
                return Ok(None);
            }
            Err(ClientError::Gone) if abandoned && !self.gone.is_set() => {
                *probe = self.aim.connect()?;
                watch(probe.hang_up(), &self.target, &self.gone, &self.last_place);
                say("abandoned: the code is interrupted when it returns from C")?;
                return Ok(None);
            }
            // The request failed; the prompt stays.
            Err(error @ ClientError::NotDone(_)) => {
                errors::print(&error.into())?;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Some(evaluated))
    }

    fn stacks(&self) -> Result<BacktraceReport, ClientError> {
        self.target.stacks(&StackQuery::default())?.read()
    }

    /// Goes to a thread or a frame, if it is there, and says where that is.
    fn move_to(&self, scope: Scope) -> anyhow::Result<()> {
        if scope != Scope::default() {
            let report = self.stacks()?;
            match show::scope(&report, &scope) {
                Ok(place) => say(&place)?,
                Err(why) => return Ok(say(&why)?),
            }
        }
        self.link.move_to(scope);
        Ok(())
    }

    fn describe(&self, name: &str) -> anyhow::Result<()> {
        let Some(steps) = path::steps(name) else {
            return Ok(());
        };
        let scope = self.link.scope();
        let wanted = Describe { steps, scope };
        match self.link.probe().describe(wanted, QUERY_TIMEOUT)? {
            Some(description) => write!(
                terminal::stdout(),
                "{}",
                show::description(name, &description)
            )?,
            None => say(&format!(
                "{name} does not exist, or only code can evaluate it"
            ))?,
        }
        Ok(())
    }

    fn who(&self) -> anyhow::Result<()> {
        let own = Complete {
            steps: Vec::new(),
            look: CompletionKind::Own,
            prefix: String::new(),
            scope: self.link.scope(),
        };
        let names = self.link.probe().complete(own, QUERY_TIMEOUT)?;
        write!(terminal::stdout(), "{}", show::names(&names))?;
        Ok(())
    }

    fn query(&mut self, sql: &str) -> anyhow::Result<()> {
        if self.asker.is_none() {
            self.asker = Some(QueryRunner::new(self.aim, &AS_TABLE, self.queries.clone())?);
        }
        let Some(asker) = &self.asker else {
            return Ok(());
        };
        match asker.ask(sql) {
            Err(error) if error.is::<EngineError>() => Ok(errors::print(&error)?),
            done => done.map(drop),
        }
    }

    fn backtrace(&self, words: &[String]) -> anyhow::Result<()> {
        match magic::backtrace_arguments(words) {
            Ok(mut arguments) => {
                // Of the thread that was chosen, unless more or others are asked for.
                if !arguments.all && !arguments.tasks && arguments.thread.is_none() {
                    arguments.thread = self.link.scope().thread.map(ThreadSelector::from);
                }
                backtrace::run(&arguments, self.aim)?;
            }
            Err(error) => say(error.to_string().trim_end())?,
        }
        Ok(())
    }

    /// Whether Ctrl-C was pressed while nothing ran, since this was asked last.
    pub(in crate::commands) fn take_press(&self) -> bool {
        self.running.idle.swap(false, Ordering::AcqRel)
    }

    /// What is known of a target that has gone.
    pub(in crate::commands) fn farewell(&self) -> String {
        let hello = self.link.probe().hello().clone();
        let what = if self.target.is_alive() {
            "has lost its probe (another client detached it)"
        } else {
            "has ended"
        };
        match self.last_place.get() {
            Some(place) => format!("process {} {what}; {place}", hello.pid),
            None => format!("process {} {what}", hello.pid),
        }
    }
}

/// What a person should know, and no data.
pub(in crate::commands) fn say(text: &str) -> io::Result<()> {
    writeln!(terminal::stderr(), "{text}")
}

/// Where the target was seen last.
#[derive(Debug, Clone, Default)]
struct LastLocation(Arc<Mutex<Option<(Instant, String)>>>);

impl LastLocation {
    fn set(&self, place: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), place));
    }

    fn get(&self) -> Option<String> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (when, place) = seen.as_ref()?;
        let ago = when.elapsed().as_secs_f64();
        Some(format!("{ago:.1} s before, its main thread was in {place}"))
    }
}

/// Notes from time to time where the target is, until the connection ends. Reading its stack from outside costs it
/// nothing.
fn watch(
    hang_up: DisconnectWatcher,
    target: &Target,
    gone: &Arc<ReadInterrupt>,
    last_place: &LastLocation,
) {
    let (target, gone, last_place) = (target.clone(), Arc::clone(gone), last_place.clone());
    thread::spawn(move || {
        // Where that is not permitted its last place stays unknown.
        let mut stacks = target.stacks(&StackQuery::default()).ok();
        loop {
            if let Some(Ok(report)) = stacks.as_mut().map(Stacks::read) {
                last_place.set(show::innermost(&report));
            }
            if hang_up.wait(stacks.is_some().then_some(GLANCE)) {
                break;
            }
        }
        if !hang_up.is_ours() {
            gone.set();
        }
    });
}

/// The eval that Ctrl-C means. A query may be meant as well: only one of them runs.
#[derive(Debug, Clone, Default)]
struct Running {
    eval: Arc<Mutex<Option<Interrupted>>>,
    /// It was pressed while nothing ran.
    idle: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Interrupted {
    eval: Canceller,
    presses: u32,
    since: Instant,
}

impl Running {
    /// The first Ctrl-C interrupts the code; the second leaves it behind.
    fn interruptible(queries: Queries) -> anyhow::Result<Self> {
        let running = Self::default();
        let pressed = running.clone();
        ctrlc::set_handler(move || {
            queries.stop();
            if let Some(running) = pressed.lock().as_mut() {
                running.presses += 1;
                // A target that cannot be told is gone, which is noticed elsewhere.
                match running.presses {
                    1 => {
                        running.eval.cancel().ok();
                        pressed.say_later(running.since);
                    }
                    _ => drop(running.eval.abandon()),
                }
            } else {
                pressed.idle.store(true, Ordering::Release);
            }
        })?;
        Ok(running)
    }

    /// Says what to do about code that was interrupted and does not end.
    fn say_later(&self, since: Instant) {
        let running = self.clone();
        thread::spawn(move || {
            thread::sleep(INTERRUPT_TIMEOUT);
            let is_same = |running: &Interrupted| running.since == since && running.presses == 1;
            if running.lock().as_ref().is_some_and(is_same) {
                say("\nit ends when it returns from C; Ctrl-C again abandons it").ok();
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Option<Interrupted>> {
        self.eval.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, eval: Canceller) {
        let since = Instant::now();
        *self.lock() = Some(Interrupted {
            eval,
            presses: 0,
            since,
        });
    }

    /// Whether it was left behind.
    fn end(&self) -> bool {
        self.lock()
            .take()
            .is_some_and(|running| running.presses > 1)
    }
}
