//! `probing flamegraph`: samples stacks into a picture or a file.

mod colours;
mod drawing;
mod file;
mod progress;

use std::io::Write as _;

use anyhow::{Context as _, bail};
use probing_client::{Group, Members, Pause, Plan, Samples, SamplesEnd, Stop, Target, sample_each};

use self::file::File;
use self::progress::Progress;
use crate::arguments::{FlamegraphArguments, FlamegraphFormat};
use crate::commands::TargetArgs;
use crate::exit::{self, Status};
use crate::terminal;

pub(crate) fn run(arguments: &FlamegraphArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let subject = Subject::of(aim)?;
    let format = format(arguments)?;
    let file = match &arguments.output {
        Some(path) => File::named(path)?,
        None => File::in_this_folder(&subject.file_name(), format)?,
    };
    let samples = sampled(arguments, &subject)?;
    check(&samples, arguments)?;
    let text = drawing::drawn(&samples, format, &subject.title())?;
    file.write(&text)?;
    let mut words = terminal::stderr();
    if let Some(note) = &samples.note {
        writeln!(words, "{note}")?;
    }
    writeln!(words, "{}", summary(&samples, &file))?;
    Ok(exit::OK)
}

/// Whose time it is about.
enum Subject {
    One(Target),
    Several(Members),
}

impl Subject {
    fn of(aim: &TargetArgs) -> anyhow::Result<Self> {
        if let Some(target) = aim.targets.one() {
            return Ok(Self::One(target));
        }
        let members = aim.members()?;
        Ok(match members.all.as_slice() {
            [only] if members.missing.is_empty() => Self::One(only.target.clone()),
            _ => Self::Several(members),
        })
    }

    fn file_name(&self) -> String {
        match self {
            Self::One(target) => format!("flamegraph-{target}"),
            Self::Several(members) => format!("flamegraph-{}-targets", members.all.len()),
        }
    }

    fn title(&self) -> String {
        match self {
            Self::One(target) => format!("probing -t {target} flamegraph"),
            Self::Several(members) => {
                let group: Group = members.all.iter().map(|member| &member.who).collect();
                format!("probing flamegraph of {group}")
            }
        }
    }
}

fn sampled(arguments: &FlamegraphArguments, subject: &Subject) -> anyhow::Result<Samples> {
    let stop = Stop::default();
    let asked = stop.clone();
    ctrlc::set_handler(move || asked.ask())?;
    let plan = plan(arguments);
    let mut progress = Progress::new(arguments.duration);
    let members = match subject {
        Subject::One(target) => {
            let samples = target.sample(&plan, &stop, |samples| progress.show("process", samples));
            progress.clear();
            return Ok(samples?);
        }
        Subject::Several(members) => members,
    };
    let others = format!("{} targets, among them process", members.all.len());
    let (samples, failures) = sample_each(&members.all, &plan, &stop, |samples| {
        progress.show(&others, samples);
    });
    progress.clear();
    let mut words = terminal::stderr();
    for (member, error) in &failures {
        writeln!(words, "warning: {} was not sampled: {error}", member.who)?;
    }
    if !members.missing.is_empty() {
        writeln!(
            words,
            "warning: no process here has rank {}",
            members.missing
        )?;
    }
    let count = members.all.len();
    let none = || format!("none of {count} targets could be sampled");
    samples.with_context(none)
}

fn plan(arguments: &FlamegraphArguments) -> Plan {
    Plan {
        duration: arguments.duration,
        rate: arguments.rate,
        thread: arguments.thread.clone(),
        idle: arguments.idle,
        threads: arguments.threads,
        functions: arguments.functions,
        pause: Pause::when_moving(arguments.pause),
    }
}

/// What to write: as asked for, else as the file's name tells.
fn format(arguments: &FlamegraphArguments) -> anyhow::Result<FlamegraphFormat> {
    let path = arguments.output.as_deref();
    let ending = path.and_then(|path| path.extension()?.to_str());
    match (arguments.format, path, ending) {
        (Some(format), ..) => Ok(format),
        (_, None, _) | (.., Some("svg")) => Ok(FlamegraphFormat::Svg),
        (_, Some(path), _) if file::is_stdout(path) => Ok(FlamegraphFormat::Svg),
        (.., Some("json")) => Ok(FlamegraphFormat::Speedscope),
        (.., Some("folded" | "txt")) => Ok(FlamegraphFormat::Folded),
        (_, Some(path), _) => bail!(
            "unknown format of {}: add --format svg, speedscope or folded",
            path.display()
        ),
    }
}

/// An empty picture helps nobody: says why it would be one.
fn check(samples: &Samples, arguments: &FlamegraphArguments) -> anyhow::Result<()> {
    if !samples.calls.is_empty() {
        return Ok(());
    }
    let wanted = arguments.thread.as_ref();
    match wanted {
        _ if samples.taken == 0 && samples.end == SamplesEnd::TargetEnded => {
            bail!("process {} ended before it could be sampled", samples.pid)
        }
        _ if samples.taken == 0 => bail!(
            "no stack could be read in {:.1} s; {} readings failed",
            samples.took.as_secs_f64(),
            samples.failed
        ),
        Some(wanted) if !samples.wanted_was_seen => Err(samples.no_thread(wanted).into()),
        _ => bail!(
            "{} never ran in {} samples; --idle also counts those that sleep",
            wanted.map_or("a thread".to_owned(), |wanted| format!("thread {wanted}")),
            samples.taken
        ),
    }
}

/// What was done, what is lacking, what it cost.
fn summary(samples: &Samples, file: &File) -> String {
    let took = samples.took.as_secs_f64();
    let why = match samples.end {
        SamplesEnd::Done => "",
        SamplesEnd::Stopped => " (stopped early)",
        SamplesEnd::TargetEnded => " (the process ended)",
    };
    let mut text = format!(
        "{file}: {} samples in {took:.1} s{why}, {} missed, {} failed; {} of {} stacks torn",
        samples.taken, samples.missed, samples.failed, samples.torn, samples.counted
    );
    if samples.calls.cut() > 0 {
        text += &format!(", {} cut: too many different stacks", samples.calls.cut());
    }
    if !samples.paused.is_zero() {
        let millis = samples.paused.as_secs_f64() * 1e3;
        text += &format!("; threads were held for at most {millis:.2} ms");
    }
    let share = samples.cpu.as_secs_f64() / took.max(f64::EPSILON) * 100.0;
    text + &format!("; sampling used {share:.1} % of a core")
}
