//! `probing -t PID capture -o x.probe`: a process as it is now, in a file.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use probing_capture::{Capture, CaptureError, CaptureWriter, EXTENSION};
use probing_client::{Entry, Member, Members, Ranks, StackQuery, Target, TargetLabel, host_name};
use probing_engine::{Engine, EngineError, EngineSnapshot, Format, QueryLimits};
use probing_proto::capture::{FORMAT, Manifest};
use probing_proto::message::breakpoints::Stop;
use probing_proto::process::Pid;
use probing_proto::report::{BacktraceReport, CaptureReport};
use probing_proto::text::visible;

use crate::arguments::CaptureArguments;
use crate::commands::TargetArgs;
use crate::commands::query::whole;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

const TABLES: &str = "SELECT DISTINCT table_name FROM probing.tables ORDER BY table_name";

pub(crate) fn run(arguments: &CaptureArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let engine = Engine::start()?;
    let mut reports = Vec::new();
    for (member, path) in members.all.iter().zip(paths(&arguments.output, &members)?) {
        let report = CaptureInProgress::begin(&engine, member, &path)?.finish(&arguments.reason)?;
        if !arguments.json {
            say(&report)?;
        }
        reports.push(report);
    }
    if arguments.json {
        json::print(&reports)?;
    }
    Ok(exit::OK)
}

/// Where to: the file that was named, or one for each target in the folder that was.
fn paths(output: &Path, members: &Members) -> anyhow::Result<Vec<PathBuf>> {
    let is_file = output
        .extension()
        .is_some_and(|extension| extension == EXTENSION);
    if let ([_], true) = (members.all.as_slice(), is_file) {
        return Ok(vec![output.to_owned()]);
    }
    ensure!(
        !is_file,
        "{} targets do not fit into one file: name a folder, as in -o captures/",
        members.all.len()
    );
    let is_folder = members.all.len() > 1
        || output.is_dir()
        || output.as_os_str().as_encoded_bytes().ends_with(b"/");
    ensure!(
        is_folder,
        "a capture needs the ending .{EXTENSION}: -o {}.{EXTENSION}",
        output.display()
    );
    fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
    let name = |member: &Member| match (&member.who, member.pid) {
        (TargetLabel::Rank(rank), _) => format!("rank-{rank}"),
        (_, Some(pid)) => format!("pid-{pid}"),
        (who, None) => visible::file_name(&who.to_string()),
    };
    let files = members
        .all
        .iter()
        .map(|member| output.join(format!("{}.{EXTENSION}", name(member))));
    Ok(files.collect())
}

/// A capture that is being taken.
struct CaptureInProgress<'a> {
    engine: &'a Engine,
    member: &'a Member,
    path: &'a Path,
    file: CaptureWriter,
    tables: Vec<String>,
    missing: Vec<String>,
}

impl<'a> CaptureInProgress<'a> {
    fn begin(engine: &'a Engine, member: &'a Member, path: &'a Path) -> anyhow::Result<Self> {
        Ok(Self {
            engine,
            member,
            path,
            file: CaptureWriter::create(path)?,
            tables: Vec::new(),
            missing: Vec::new(),
        })
    }

    fn finish(mut self, reason: &str) -> anyhow::Result<CaptureReport> {
        let kept = self.kept()?;
        let moment = self.engine.moment(Members {
            all: vec![self.member.clone()],
            missing: Ranks::default(),
        });
        let stacks = self.stacks(&moment)?;
        if kept.is_none() {
            self.tasks()?;
        }
        self.tables(&moment)?;
        // Nothing at all: that is no capture, and the first reason is why.
        if let (None, [], [why, ..]) = (&stacks, self.tables.as_slice(), self.missing.as_slice()) {
            anyhow::bail!("cannot capture anything of {}: {why}", self.member.who);
        }
        let manifest = match kept {
            Some(kept) => self.again(kept),
            None => self.manifest(reason, stacks.as_ref()),
        };
        self.file.finish(&manifest)?;
        Ok(CaptureReport {
            path: self.path.display().to_string(),
            bytes: fs::metadata(self.path)?.len(),
            threads: stacks.map_or(0, |stacks| stacks.threads.len()),
            capture: manifest,
        })
    }

    /// What a process wrote of itself, which becomes one file here. A file is one already.
    fn kept(&self) -> anyhow::Result<Option<Manifest>> {
        let Target::Capture(path) = &self.member.target else {
            return Ok(None);
        };
        let capture = Capture::open(path)?;
        ensure!(
            capture.rings().is_some(),
            "{} is already a capture in one file: copy it",
            path.display()
        );
        Ok(Some(capture.manifest().clone()))
    }

    /// The same, with what this file has.
    fn again(&self, kept: Manifest) -> Manifest {
        // What that did not have is not here either; why tables are not is told again.
        let missing = kept.missing.into_iter().chain(self.missing.clone());
        Manifest {
            tables: self.tables.clone(),
            missing: missing.collect(),
            ..kept
        }
    }

    fn stacks(&mut self, moment: &EngineSnapshot<'_>) -> anyhow::Result<Option<BacktraceReport>> {
        let mut report = match moment.stacks().pop() {
            Some(Ok(report)) => report,
            Some(Err(unseen)) => {
                self.missing.push(format!("stacks: {}", unseen.message));
                return Ok(None);
            }
            None => return Ok(None),
        };
        let target = &self.member.target;
        if let Err(error) = target.tell_locals(&mut report) {
            self.missing.push(format!("values by `repr`: {error}"));
        }
        if let Ok(stacks) = target.stacks(&StackQuery::default()) {
            self.file.sources(&stacks.excerpts(&report))?;
        }
        self.file.stacks(&report)?;
        Ok(Some(report))
    }

    fn tasks(&mut self) -> anyhow::Result<()> {
        let stacks = self.member.target.stacks(&StackQuery::default());
        match stacks.and_then(|mut stacks| stacks.tasks()) {
            Ok(tasks) => self.file.tasks(&tasks)?,
            Err(error) => self.missing.push(format!("asyncio tasks: {error}")),
        }
        Ok(())
    }

    fn tables(&mut self, moment: &EngineSnapshot<'_>) -> anyhow::Result<()> {
        let (names, _) = moment
            .ask(TABLES, &QueryLimits::default())?
            .into_json(usize::MAX)?;
        for row in names.rows {
            let Some(name) = row.first().and_then(|name| name.as_str()) else {
                continue;
            };
            let mut missing = Vec::new();
            let written = self.file.table(name, |out| -> Result<(), TableError> {
                let answer = moment.ask(&whole(name), &QueryLimits::default())?;
                missing = answer.write(Format::Arrow, out)?.missing;
                Ok(())
            });
            // Those of the tables before are told again: it is one moment.
            for one in missing {
                let words = one.why.message;
                if !self.missing.iter().any(|known| known.ends_with(&words)) {
                    self.missing.push(words);
                }
            }
            match written {
                Ok(()) => self.tables.push(name.to_owned()),
                Err(TableError::Capture(error)) => return Err(error.into()),
                Err(TableError::Rows(error @ EngineError::NotWritten { .. })) => {
                    return Err(error.into());
                }
                Err(TableError::Rows(error)) => self.missing.push(format!("{name}: {error}")),
            }
        }
        Ok(())
    }

    /// Threads that are stopped; without a probe there are none.
    fn stops(&self) -> Vec<Stop> {
        let reached = self.member.target.connect(&Entry::Forbidden);
        let stops = reached.and_then(|mut reached| reached.probe.stops());
        // What could not be asked is among the missing tables already.
        stops.unwrap_or_default()
    }

    fn manifest(&self, reason: &str, stacks: Option<&BacktraceReport>) -> Manifest {
        let facts = self.member.target.facts().ok();
        Manifest {
            format: FORMAT,
            probing: env!("CARGO_PKG_VERSION").to_owned(),
            taken_at_nanos: stacks.map_or_else(now, |stacks| stacks.taken_at_nanos),
            reason: reason.to_owned(),
            host: match &self.member.target {
                Target::Remote(remote) => remote.node.endpoint().to_string(),
                _ => host_name(),
            },
            pid: self.member.pid.unwrap_or(Pid(0)),
            rank: self.member.rank,
            python: stacks.map_or_else(String::new, |stacks| stacks.python.clone()),
            command: facts.map_or_else(Vec::new, |facts| facts.command),
            stops: self.stops(),
            points: Vec::new(),
            tables: self.tables.clone(),
            missing: self.missing.clone(),
        }
    }
}

/// Why a table is not in the file.
enum TableError {
    Capture(CaptureError),
    Rows(EngineError),
}

impl From<CaptureError> for TableError {
    fn from(error: CaptureError) -> Self {
        Self::Capture(error)
    }
}

impl From<EngineError> for TableError {
    fn from(error: EngineError) -> Self {
        Self::Rows(error)
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64
}

fn say(report: &CaptureReport) -> io::Result<()> {
    let CaptureReport {
        path,
        bytes,
        threads,
        capture,
    } = report;
    for missing in &capture.missing {
        writeln!(terminal::stderr(), "warning: not in {path}: {missing}")?;
    }
    writeln!(
        terminal::stdout(),
        "{path}: process {}, {threads} threads, {} tables, {} KB",
        capture.pid,
        capture.tables.len(),
        bytes.div_ceil(1000)
    )?;
    writeln!(
        terminal::stderr(),
        "open it with: probing -t {path} backtrace --all --locals"
    )
}
