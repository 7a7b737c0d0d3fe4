//! `--watch` and `--dump`: the same stacks again and again, until there are enough or all targets have ended.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use probing_client::{ClientError, Group, Members, Pace, Stacks, Stop, Target};

use crate::arguments::BacktraceArguments;
use crate::commands::answers::MemberResults;
use crate::commands::backtrace::{say_notes, set, tasks, text};
use crate::commands::screen::{self, Screen};
use crate::errors;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;
use probing_proto::text::timestamp::utc;

/// How often, and how many of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    every: Duration,
    /// `None`: until someone has seen enough.
    most: Option<u64>,
}

pub(super) fn asked_for(arguments: &BacktraceArguments) -> Option<Times> {
    match (arguments.watch, arguments.dump) {
        (Some(every), _) => Some(Times { every, most: None }),
        (None, Some(_)) => Some(Times {
            every: arguments.every,
            most: arguments.dump,
        }),
        (None, None) => None,
    }
}

pub(super) fn repeat_one(
    arguments: &BacktraceArguments,
    target: &Target,
    times: Times,
) -> anyhow::Result<Status> {
    let stacks = target.stacks(&crate::commands::backtrace::query(arguments))?;
    run(arguments, SingleTarget { arguments, stacks }, times)
}

pub(super) fn several(
    arguments: &BacktraceArguments,
    members: &Members,
    times: Times,
) -> anyhow::Result<Status> {
    let several = TargetGroup { arguments, members };
    if arguments.tasks {
        run(arguments, TaskGroup(several), times)
    } else {
        run(arguments, several, times)
    }
}

/// Whose stacks are shown.
trait StackSource {
    fn read(&mut self, is_first: bool) -> anyhow::Result<Reading>;

    fn name(&self) -> String;
}

/// What came of one reading.
enum Reading {
    /// As it was asked for.
    Shown {
        taken_at_nanos: u64,
        text: String,
        /// What a user should know about how it was read.
        notes: Vec<String>,
    },
    /// The next may go well.
    Failed(anyhow::Error),
    Ended,
}

struct SingleTarget<'a> {
    arguments: &'a BacktraceArguments,
    stacks: Stacks,
}

impl StackSource for SingleTarget<'_> {
    /// A target that starts another program is told and tried again.
    fn read(&mut self, is_first: bool) -> anyhow::Result<Reading> {
        let taken_at_nanos = now();
        let text = if self.arguments.tasks {
            self.tasks()
        } else {
            self.threads()
        };
        match text {
            Ok((text, notes)) => Ok(Reading::Shown {
                taken_at_nanos,
                text,
                notes,
            }),
            Err(error) if is_first => Err(error),
            Err(error) if is_end(&error) => Ok(Reading::Ended),
            Err(error) => Ok(Reading::Failed(error)),
        }
    }

    fn name(&self) -> String {
        format!("process {}", self.stacks.pid())
    }
}

impl SingleTarget<'_> {
    fn threads(&mut self) -> anyhow::Result<(String, Vec<String>)> {
        let report = self.stacks.read()?;
        let text = if self.arguments.json {
            json::line(&report)?
        } else {
            text::text(&report, self.arguments.reverse)
        };
        Ok((text, report.notes))
    }

    fn tasks(&mut self) -> anyhow::Result<(String, Vec<String>)> {
        let report = self.stacks.tasks()?;
        let text = if self.arguments.json {
            json::line(&report)?
        } else {
            tasks::words(&report, self.arguments.reverse)
        };
        Ok((text, report.notes))
    }
}

/// Since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64
}

fn is_end(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<ClientError>()
        .is_some_and(ClientError::is_end)
}

struct TargetGroup<'a> {
    arguments: &'a BacktraceArguments,
    members: &'a Members,
}

impl StackSource for TargetGroup<'_> {
    /// Those that have ended are told as not read, as long as others live.
    fn read(&mut self, is_first: bool) -> anyhow::Result<Reading> {
        let taken_at_nanos = now();
        let arguments = self.arguments;
        let answers = set::read(arguments, self.members);
        if let Some(reading) = none_read(&answers, is_first)? {
            return Ok(reading);
        }
        Ok(Reading::Shown {
            taken_at_nanos,
            notes: set::notes(&answers),
            text: if arguments.json {
                json::line(&set::report(answers))?
            } else {
                set::text(&answers, arguments)
            },
        })
    }

    fn name(&self) -> String {
        let group: Group = self.members.all.iter().map(|member| &member.who).collect();
        group.to_string()
    }
}

/// Their tasks.
struct TaskGroup<'a>(TargetGroup<'a>);

impl StackSource for TaskGroup<'_> {
    fn read(&mut self, is_first: bool) -> anyhow::Result<Reading> {
        let taken_at_nanos = now();
        let TargetGroup { arguments, members } = self.0;
        let answers = tasks::read(arguments, members);
        if let Some(reading) = none_read(&answers, is_first)? {
            return Ok(reading);
        }
        Ok(Reading::Shown {
            taken_at_nanos,
            notes: tasks::notes(&answers),
            text: if arguments.json {
                json::line(&answers.report(|report| report))?
            } else {
                tasks::of_several(&answers, arguments.reverse)
            },
        })
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

/// What to show where none of several answered.
fn none_read<R: Send + 'static>(
    answers: &MemberResults<'_, R>,
    is_first: bool,
) -> anyhow::Result<Option<Reading>> {
    if answers.count().0 > 0 {
        return Ok(None);
    }
    let failures = answers.failures().join("\n  ");
    match () {
        () if is_first => bail!("none of the targets could be read:\n  {failures}"),
        () if answers.all_ended() => Ok(Some(Reading::Ended)),
        () => Ok(Some(Reading::Failed(anyhow!(failures)))),
    }
}

fn run(
    arguments: &BacktraceArguments,
    mut watched: impl StackSource,
    times: Times,
) -> anyhow::Result<Status> {
    let stop = Stop::default();
    let asked = stop.clone();
    ctrlc::set_handler(move || asked.ask())?;
    let lives = arguments.watch.is_some() && !arguments.json && terminal::is_stdout_terminal();
    let end = if lives {
        let pace = Pace::new(times.every, &stop);
        watch(arguments, &mut watched, times.every, pace)?
    } else {
        dump(arguments, &mut watched, times, &stop)?
    };
    if let RepeatOutcome::Ended { shown } = end {
        let name = watched.name();
        writeln!(
            terminal::stderr(),
            "{name} has ended after {shown} readings"
        )?;
    }
    Ok(match end {
        RepeatOutcome::Ended { shown } if times.most.is_some_and(|most| shown < most) => {
            exit::UNREACHABLE
        }
        RepeatOutcome::Interrupted if times.most.is_some() => exit::INTERRUPTED,
        _ => exit::OK,
    })
}

enum RepeatOutcome {
    Done,
    Interrupted,
    /// The target, or all of several.
    Ended {
        shown: u64,
    },
}

/// Each after the other, with its time.
fn dump(
    arguments: &BacktraceArguments,
    watched: &mut impl StackSource,
    times: Times,
    stop: &Stop,
) -> anyhow::Result<RepeatOutcome> {
    let mut out = terminal::stdout();
    let mut pace = Pace::new(times.every, stop);
    let (mut shown, mut said) = (0, Vec::new());
    while times.most.is_none_or(|most| shown < most) {
        if pace.wait().is_none() {
            return Ok(RepeatOutcome::Interrupted);
        }
        let reading = watched.read(shown == 0)?;
        if let Reading::Shown { notes, .. } = &reading {
            let new: Vec<String> = notes
                .iter()
                .filter(|it| !said.contains(*it))
                .cloned()
                .collect();
            say_notes(&new)?;
            said.extend(new);
        }
        match reading {
            Reading::Shown { text, .. } if arguments.json => writeln!(out, "{text}")?,
            Reading::Shown {
                taken_at_nanos,
                text,
                ..
            } => {
                let gap = if shown > 0 { "\n" } else { "" };
                write!(out, "{gap}--- {}\n{text}", utc(taken_at_nanos))?;
            }
            Reading::Failed(error) => errors::print(&error)?,
            Reading::Ended => return Ok(RepeatOutcome::Ended { shown }),
        }
        out.flush()?;
        shown += 1;
    }
    Ok(RepeatOutcome::Done)
}

/// In place, on a screen of its own. What a target that ended was last seen at stays when the screen goes.
fn watch(
    arguments: &BacktraceArguments,
    watched: &mut impl StackSource,
    every: Duration,
    mut pace: Pace,
) -> anyhow::Result<RepeatOutcome> {
    let mut screen = Screen::new(screen::VisiblePart::of(
        arguments.all || arguments.tasks,
        arguments.reverse,
    ));
    let (mut shown, mut last) = (0, String::new());
    let end = loop {
        if screen.wait(&mut pace)?.is_none() {
            break RepeatOutcome::Interrupted;
        }
        let text = match watched.read(shown == 0)? {
            Reading::Shown {
                taken_at_nanos,
                text,
                notes,
            } => {
                screen.set_title(format!(
                    "{}, {}, every {} s (Ctrl-C exits)",
                    watched.name(),
                    utc(taken_at_nanos),
                    every.as_secs_f64()
                ));
                last = text;
                // The screen has its own way to make things stand out.
                let notes = notes.iter().map(|note| format!("{note}\n"));
                terminal::plain(&last) + &notes.collect::<String>()
            }
            // A process that ends has threads without stacks first.
            Reading::Failed(error) => errors::line(&errors::message(&error)),
            Reading::Ended => break RepeatOutcome::Ended { shown },
        };
        screen.draw(&text)?;
        shown += 1;
    };
    drop(screen);
    if let RepeatOutcome::Ended { .. } = end {
        write!(terminal::stdout(), "{last}")?;
    }
    Ok(end)
}
