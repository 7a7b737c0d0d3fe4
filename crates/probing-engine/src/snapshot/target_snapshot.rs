//! Snapshots of targets: each target is read once for all tables of a query.
//!
//! Each is looked at once, when the first scan needs it, so that all tables of a query speak of the same moment.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use probing_capture::Capture;
use probing_client::{
    ClientError, Entry, FanOutLimits, LocalValues, Member, Members, ProcessFacts, Recording,
    StackQuery, Target, TargetLabel, ThreadFacts, fan_out, host_name,
};
use probing_proto::agent::MissingTarget;
use probing_proto::capture::Manifest;
use probing_proto::env::PROBING_STORE_BYTES;
use probing_proto::message::Failure;
use probing_proto::message::breakpoints::Breakpoint;
use probing_proto::process::Pid;
use probing_proto::report::BacktraceReport;
use probing_store::{Store, Unreadable};

use crate::snapshot::steps::{Alignment, Basis};

/// What one query may keep of rings whose writers would overwrite them meanwhile.
const MAX_PINNED_BYTES: u64 = 512 << 20;
/// For each target. Reading one takes milliseconds, a second when its threads never stand still.
const TARGET_TIMEOUT: Duration = Duration::from_secs(10);

/// What is read beside the frames, when stacks are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Values of local variables.
    pub(crate) locals: bool,
    /// Frames of native code.
    pub(crate) native: bool,
}

/// Why a target is not in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFailure {
    pub message: String,
    pub hint: Option<String>,
}

impl From<ClientError> for ReadFailure {
    fn from(error: ClientError) -> Self {
        Self {
            hint: error.hint(),
            message: error.to_string(),
        }
    }
}

impl From<&Unreadable> for ReadFailure {
    fn from(file: &Unreadable) -> Self {
        Self {
            message: file.words(),
            hint: Some(file.error.hint().to_owned()),
        }
    }
}

/// A target whose rows are missing, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadTarget {
    pub who: TargetLabel,
    pub pid: Option<Pid>,
    pub why: ReadFailure,
}

impl UnreadTarget {
    /// Whether its rows are there, and it is only said how far their steps are aligned with those of other ranks.
    pub fn is_alignment(&self) -> bool {
        let mut all = Basis::ALL.iter().filter_map(|basis| basis.words());
        all.any(|words| words == self.why)
    }
}

/// Targets whose rows are missing, and ranks that no process has, for programs.
pub fn missing_targets(missing: &[UnreadTarget], members: &Members) -> Vec<MissingTarget> {
    let rank = |one: &UnreadTarget| {
        let mut all = members.all.iter();
        all.find(|member| member.who == one.who)?.rank
    };
    let unread = missing.iter().map(|one| MissingTarget {
        pid: one.pid,
        rank: rank(one),
        failure: Failure {
            error: one.why.message.clone(),
            hint: one.why.hint.clone(),
        },
    });
    let absent = (!members.missing.is_empty()).then(|| MissingTarget {
        pid: None,
        rank: None,
        failure: Failure::new(format!("no process here has rank {}", members.missing)),
    });
    unread.chain(absent).collect()
}

/// All targets of a query.
#[derive(Debug)]
pub(crate) struct TargetSetSnapshot {
    pub(crate) all: Vec<Arc<TargetSnapshot>>,
    /// Those that are captures with their tables in them: nothing is read of them but those.
    pub(crate) captures: Vec<Capture>,
    needs: Arc<Mutex<Needs>>,
    /// Bytes of fast rings that may still be copied for this query.
    pub(crate) pin_room: AtomicU64,
    /// How the steps of all targets fit together, once it is needed.
    pub(crate) steps: OnceLock<Arc<Alignment>>,
    missing: Mutex<Vec<UnreadTarget>>,
    /// How far steps are aligned of targets that others have read: no row of these is missing.
    aligned: Mutex<Vec<UnreadTarget>>,
    /// Those that gave rows, or would have if there were any.
    answered: Mutex<HashSet<TargetLabel>>,
}

/// One target, as far as it has been looked at.
pub(crate) struct TargetSnapshot {
    pub(crate) member: Member,
    pub(crate) host: Arc<str>,
    /// What it wrote of itself, when it is looked at as it was then.
    pub(crate) kept: Option<Manifest>,
    needs: Arc<Mutex<Needs>>,
    stacks: OnceLock<Result<BacktraceReport, ReadFailure>>,
    facts: OnceLock<Result<ProcessFacts, ReadFailure>>,
    threads: OnceLock<Result<Vec<ThreadFacts>, ReadFailure>>,
    recorded: OnceLock<Result<Option<Recorded>, ReadFailure>>,
    points: OnceLock<Result<Vec<Breakpoint>, ReadFailure>>,
    overwritten: Mutex<BTreeMap<String, u64>>,
    /// What the steps of its rows were aligned by, where that is less than certain.
    steps: OnceLock<ReadFailure>,
}

/// What a target has recorded.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) recording: Recording,
    pub(crate) store: Store,
}

impl TargetSetSnapshot {
    pub(crate) fn of(members: &Members) -> Self {
        let host: Arc<str> = host_name().into();
        let needs = Arc::<Mutex<Needs>>::default();
        let seen = |member: &Member, kept: Option<Manifest>| {
            Arc::new(TargetSnapshot {
                member: member.clone(),
                host: match &kept {
                    Some(kept) => kept.host.as_str().into(),
                    None => Arc::clone(&host),
                },
                kept,
                needs: Arc::clone(&needs),
                stacks: OnceLock::new(),
                facts: OnceLock::new(),
                threads: OnceLock::new(),
                recorded: OnceLock::new(),
                points: OnceLock::new(),
                overwritten: Mutex::default(),
                steps: OnceLock::new(),
            })
        };
        let (mut all, mut captures, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for member in &members.all {
            let Target::Capture(path) = &member.target else {
                all.push(seen(member, None));
                continue;
            };
            match Capture::open(path) {
                Ok(capture) if capture.rings().is_some() => {
                    all.push(seen(member, Some(capture.manifest().clone())));
                }
                Ok(capture) => captures.push(capture),
                Err(error) => missing.push(UnreadTarget {
                    who: member.who.clone(),
                    pid: member.pid,
                    why: ClientError::from(error).into(),
                }),
            }
        }
        Self {
            all,
            captures,
            needs,
            pin_room: AtomicU64::new(MAX_PINNED_BYTES),
            steps: OnceLock::new(),
            missing: Mutex::new(missing),
            aligned: Mutex::default(),
            answered: Mutex::default(),
        }
    }

    /// Notes what a scan will read. All scans of a query are planned before the first one reads.
    pub(crate) fn need(&self, needs: Needs) {
        let mut all = lock(&self.needs);
        all.locals |= needs.locals;
        all.native |= needs.native;
    }

    /// Asks these targets, all at once; what each answers, in their order, and nothing for those that cannot.
    pub(crate) fn ask<A: Send + 'static>(
        &self,
        those: &[Arc<TargetSnapshot>],
        ask: impl Fn(&TargetSnapshot) -> Result<A, ReadFailure> + Send + Sync + 'static,
    ) -> Vec<A> {
        let answers = fan_out(those, FanOutLimits::within(TARGET_TIMEOUT), move |seen| {
            ask(seen)
        });
        let mut given = Vec::new();
        for (answer, seen) in answers.into_iter().zip(those) {
            let too_long = || {
                Err(ClientError::TooLong {
                    patience: TARGET_TIMEOUT,
                }
                .into())
            };
            match answer.unwrap_or_else(too_long) {
                Ok(answer) => {
                    lock(&self.answered).insert(seen.member.who.clone());
                    given.push(answer);
                }
                Err(why) => self.misses(seen, why),
            }
        }
        given
    }

    /// Notes that rows of a target are missing.
    pub(crate) fn misses(&self, seen: &TargetSnapshot, why: ReadFailure) {
        let (who, pid) = (seen.member.who.clone(), seen.member.pid);
        self.lacks(UnreadTarget { who, pid, why });
    }

    /// The same of one that somebody else has looked at, or how far its steps are aligned.
    pub(crate) fn lacks(&self, missing: UnreadTarget) {
        let mut all = lock(if missing.is_alignment() {
            &self.aligned
        } else {
            &self.missing
        });
        if !all.contains(&missing) {
            all.push(missing);
        }
    }

    /// Notes that somebody else has looked at these, and told whom it lacks.
    pub(crate) fn hears(&self, members: &Members, missing: Vec<UnreadTarget>) {
        let is_lacking = |member: &&Member| {
            let mut missing = missing.iter().filter(|one| !one.is_alignment());
            missing.any(|one| one.who == member.who)
        };
        let given = members.all.iter().filter(|member| !is_lacking(member));
        lock(&self.answered).extend(given.map(|member| member.who.clone()));
        for one in missing {
            self.lacks(one);
        }
    }

    /// Whose rows are missing so far.
    pub(crate) fn missing(&self) -> Vec<UnreadTarget> {
        let overwritten = self.all.iter().flat_map(|seen| {
            let tables = lock(&seen.overwritten).clone();
            let tables = tables.into_iter();
            let lost = tables.map(|(table, rows)| overwritten(&table, rows));
            let whys = lost.chain(seen.steps.get().cloned());
            whys.map(|why| UnreadTarget {
                who: seen.member.who.clone(),
                pid: seen.member.pid,
                why,
            })
        });
        let missing = lock(&self.missing).clone();
        let aligned = lock(&self.aligned).clone();
        missing
            .into_iter()
            .chain(overwritten)
            .chain(aligned)
            .collect()
    }

    /// Whether some were asked and none of them answered.
    pub(crate) fn is_blind(&self) -> bool {
        let nobody = lock(&self.answered).is_empty() && self.captures.is_empty();
        nobody && !lock(&self.missing).is_empty()
    }
}

impl TargetSnapshot {
    pub(crate) fn target(&self) -> &Target {
        &self.member.target
    }

    /// The stacks of all its threads. Values of locals are those that can be read from outside: no query runs anything in
    /// a target.
    pub(crate) fn stacks(&self) -> Result<&BacktraceReport, ReadFailure> {
        let read = || {
            let Needs { locals, native } = *lock(&self.needs);
            let query = StackQuery {
                locals: if locals {
                    LocalValues::FromMemory
                } else {
                    LocalValues::Omitted
                },
                native,
                ..StackQuery::default()
            };
            Ok(self.target().stacks(&query)?.read()?)
        };
        cloned_error(self.stacks.get_or_init(read))
    }

    pub(crate) fn facts(&self) -> Result<&ProcessFacts, ReadFailure> {
        let read = || match self.kept {
            None => Ok(self.target().facts()?),
            Some(_) => Err(not_kept()),
        };
        cloned_error(self.facts.get_or_init(read))
    }

    /// What it has recorded, also when it has ended since; `None`: nothing.
    pub(crate) fn recorded(&self) -> Result<Option<&Recorded>, ReadFailure> {
        let open = || {
            let Some(recording) = self.target().recording()? else {
                return Ok(None);
            };
            let store = recording.store().map_err(|error| ReadFailure {
                message: format!("cannot read recorded rows: {error}"),
                hint: None,
            })?;
            Ok(Some(Recorded { recording, store }))
        };
        cloned_error(self.recorded.get_or_init(open)).map(Option::as_ref)
    }

    /// What is armed in it. A process without a probe has nothing armed, and is left without one.
    pub(crate) fn points(&self) -> Result<&[Breakpoint], ReadFailure> {
        if let Some(kept) = &self.kept {
            return Ok(&kept.points);
        }
        let ask = || match self.target().connect(&Entry::Forbidden) {
            Err(ClientError::NoProbe { .. }) => Ok(Vec::new()),
            reached => Ok(reached?.probe.points()?),
        };
        cloned_error(self.points.get_or_init(ask)).map(Vec::as_slice)
    }

    /// Its rank in its job. One that has ended said so when it recorded.
    pub(crate) fn rank(&self) -> Option<u32> {
        let recorded = || {
            self.recorded
                .get()?
                .as_ref()
                .ok()?
                .as_ref()?
                .recording
                .rank()
        };
        self.member.rank.or_else(recorded)
    }

    /// Notes that rows of a table were overwritten before they were read.
    pub(crate) fn lost_rows(&self, table: &str, rows: u64) {
        if rows > 0 {
            *lock(&self.overwritten).entry(table.to_owned()).or_default() += rows;
        }
    }

    /// Notes what the steps of its rows were aligned by with those of other ranks, where that is less than certain.
    pub(crate) fn steps_are_aligned_by(&self, basis: Basis) {
        if let Some(words) = basis.words() {
            self.steps.get_or_init(|| words);
        }
    }

    pub(crate) fn threads(&self) -> Result<&[ThreadFacts], ReadFailure> {
        let read = || match self.kept {
            None => Ok(self.target().thread_facts()?),
            Some(_) => Err(not_kept()),
        };
        cloned_error(self.threads.get_or_init(read)).map(Vec::as_slice)
    }
}

impl fmt::Debug for TargetSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.member.fmt(f)
    }
}

fn overwritten(table: &str, rows: u64) -> ReadFailure {
    let noun = if rows == 1 { "row was" } else { "rows were" };
    ReadFailure {
        message: format!("{rows} {noun} overwritten before the query read them: {table}"),
        hint: Some(format!(
            "a larger {} keeps rows longer; a narrower condition is read sooner",
            PROBING_STORE_BYTES.name
        )),
    }
}

/// What only the kernel could have told.
fn not_kept() -> ReadFailure {
    ReadFailure {
        message: "a capture that the process wrote itself does not have that".to_owned(),
        hint: Some("`probing -t PID capture` writes one that does".to_owned()),
    }
}

fn cloned_error<T>(read: &Result<T, ReadFailure>) -> Result<&T, ReadFailure> {
    read.as_ref().map_err(Clone::clone)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use probing_client::Ranks;

    use super::*;

    fn member(pid: u32) -> Member {
        let pid = Pid(pid);
        Member {
            target: Target::Local(pid),
            who: TargetLabel::Pid(pid),
            pid: Some(pid),
            rank: Some(pid.0),
        }
    }

    fn missing(member: &Member, why: ReadFailure) -> UnreadTarget {
        UnreadTarget {
            who: member.who.clone(),
            pid: member.pid,
            why,
        }
    }

    #[test]
    fn an_answer_whose_steps_are_aligned_in_part_has_been_given() {
        let members = Members {
            all: vec![member(1), member(2)],
            missing: Ranks::default(),
        };
        let nobody = Members {
            all: Vec::new(),
            missing: Ranks::default(),
        };
        let by_machine = Basis::Machine.words().unwrap();
        let notes = || {
            members
                .all
                .iter()
                .map(|one| missing(one, by_machine.clone()))
        };
        // A LIMIT was reached before the agents said whom they lack.
        let sight = TargetSetSnapshot::of(&nobody);
        notes().for_each(|note| sight.lacks(note));
        assert!(!sight.is_blind());
        assert_eq!(sight.missing(), notes().collect::<Vec<_>>());
        // One agent says it of its own, and another cannot be reached.
        sight.hears(&members, notes().collect());
        let why = ReadFailure {
            message: "connection refused".to_owned(),
            hint: None,
        };
        sight.lacks(missing(&member(3), why));
        assert!(!sight.is_blind());
        assert_eq!(sight.missing().len(), 3);
    }
}
