//! What one query sees of its targets. Each is looked at once, when the first scan needs it, so that all tables of a
//! query speak of the same moment.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use probing_capture::Capture;
use probing_client::{
    ClientError, Entry, Manner, Member, Members, ProcessFacts, Recording, StackQuery, Target,
    ThreadFacts, Who, ask_each, host_name,
};
use probing_proto::agent::MissingTarget;
use probing_proto::capture::Manifest;
use probing_proto::env::PROBING_STORE_BYTES;
use probing_proto::message::Failure;
use probing_proto::process::Pid;
use probing_proto::report::BacktraceReport;
use probing_proto::stops::Point;
use probing_store::{Store, Unreadable};

/// What one query may keep of rings whose writers would overwrite them meanwhile.
const MAX_PINNED_BYTES: u64 = 512 << 20;
/// For each target. Reading one takes milliseconds, a second when its threads never stand still.
const PATIENCE: Duration = Duration::from_secs(10);

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
pub struct Unseen {
    pub message: String,
    pub hint: Option<String>,
}

impl From<ClientError> for Unseen {
    fn from(error: ClientError) -> Self {
        Self {
            hint: error.hint(),
            message: error.to_string(),
        }
    }
}

impl From<&Unreadable> for Unseen {
    fn from(file: &Unreadable) -> Self {
        Self {
            message: file.words(),
            hint: Some(file.error.hint().to_owned()),
        }
    }
}

/// A target whose rows are missing, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub who: Who,
    pub pid: Option<Pid>,
    pub why: Unseen,
}

/// Targets whose rows are missing, and ranks that no process has, for programs.
pub fn missing_targets(missing: &[Missing], members: &Members) -> Vec<MissingTarget> {
    let rank = |one: &Missing| {
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
pub(crate) struct Sight {
    pub(crate) all: Vec<Arc<Seen>>,
    /// Those that are captures with their tables in them: nothing is read of them but those.
    pub(crate) captures: Vec<Capture>,
    needs: Arc<Mutex<Needs>>,
    /// Bytes of fast rings that may still be copied for this query.
    pub(crate) pin_room: AtomicU64,
    missing: Mutex<Vec<Missing>>,
    /// Those that gave rows, or would have if there were any.
    answered: Mutex<HashSet<Who>>,
}

/// One target, as far as it has been looked at.
pub(crate) struct Seen {
    pub(crate) member: Member,
    pub(crate) host: Arc<str>,
    /// What it wrote of itself, when it is looked at as it was then.
    pub(crate) kept: Option<Manifest>,
    needs: Arc<Mutex<Needs>>,
    stacks: OnceLock<Result<BacktraceReport, Unseen>>,
    facts: OnceLock<Result<ProcessFacts, Unseen>>,
    threads: OnceLock<Result<Vec<ThreadFacts>, Unseen>>,
    recorded: OnceLock<Result<Option<Recorded>, Unseen>>,
    points: OnceLock<Result<Vec<Point>, Unseen>>,
    overwritten: Mutex<BTreeMap<String, u64>>,
}

/// What a target has recorded.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) recording: Recording,
    pub(crate) store: Store,
}

impl Sight {
    pub(crate) fn of(members: &Members) -> Self {
        let host: Arc<str> = host_name().into();
        let needs = Arc::<Mutex<Needs>>::default();
        let seen = |member: &Member, kept: Option<Manifest>| {
            Arc::new(Seen {
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
                Err(error) => missing.push(Missing {
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
            missing: Mutex::new(missing),
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
        those: &[Arc<Seen>],
        ask: impl Fn(&Seen) -> Result<A, Unseen> + Send + Sync + 'static,
    ) -> Vec<A> {
        let answers = ask_each(those, Manner::within(PATIENCE), move |seen| ask(seen));
        let mut given = Vec::new();
        for (answer, seen) in answers.into_iter().zip(those) {
            let too_long = || Err(ClientError::TooLong { patience: PATIENCE }.into());
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
    pub(crate) fn misses(&self, seen: &Seen, why: Unseen) {
        let (who, pid) = (seen.member.who.clone(), seen.member.pid);
        self.lacks(Missing { who, pid, why });
    }

    /// The same of one that somebody else has looked at.
    pub(crate) fn lacks(&self, missing: Missing) {
        let mut all = lock(&self.missing);
        if !all.contains(&missing) {
            all.push(missing);
        }
    }

    /// Notes that somebody else has looked at these, and told whom it lacks.
    pub(crate) fn hears(&self, members: &Members, missing: Vec<Missing>) {
        let is_lacking = |member: &&Member| missing.iter().any(|one| one.who == member.who);
        let given = members.all.iter().filter(|member| !is_lacking(member));
        lock(&self.answered).extend(given.map(|member| member.who.clone()));
        for one in missing {
            self.lacks(one);
        }
    }

    /// Whose rows are missing so far.
    pub(crate) fn missing(&self) -> Vec<Missing> {
        let overwritten = self.all.iter().flat_map(|seen| {
            let tables = lock(&seen.overwritten).clone();
            tables.into_iter().map(|(table, rows)| Missing {
                who: seen.member.who.clone(),
                pid: seen.member.pid,
                why: overwritten(&table, rows),
            })
        });
        lock(&self.missing)
            .iter()
            .cloned()
            .chain(overwritten)
            .collect()
    }

    /// Whether some were asked and none of them answered.
    pub(crate) fn is_blind(&self) -> bool {
        let nobody = lock(&self.answered).is_empty() && self.captures.is_empty();
        nobody && !lock(&self.missing).is_empty()
    }
}

impl Seen {
    pub(crate) fn target(&self) -> &Target {
        &self.member.target
    }

    /// The stacks of all its threads. Values of locals are those that can be read from outside: no query runs anything in
    /// a target.
    pub(crate) fn stacks(&self) -> Result<&BacktraceReport, Unseen> {
        let read = || {
            let Needs { locals, native } = *lock(&self.needs);
            let query = StackQuery {
                locals,
                native,
                ..StackQuery::default()
            };
            Ok(self.target().stacks(&query)?.read()?)
        };
        told(self.stacks.get_or_init(read))
    }

    pub(crate) fn facts(&self) -> Result<&ProcessFacts, Unseen> {
        let read = || match self.kept {
            None => Ok(self.target().facts()?),
            Some(_) => Err(not_kept()),
        };
        told(self.facts.get_or_init(read))
    }

    /// What it has recorded, also when it has ended since; `None`: nothing.
    pub(crate) fn recorded(&self) -> Result<Option<&Recorded>, Unseen> {
        let open = || {
            let Some(recording) = self.target().recording()? else {
                return Ok(None);
            };
            let store = recording.store().map_err(|error| Unseen {
                message: format!("cannot read what was recorded: {error}"),
                hint: None,
            })?;
            Ok(Some(Recorded { recording, store }))
        };
        told(self.recorded.get_or_init(open)).map(Option::as_ref)
    }

    /// What is armed in it. A process without a probe has nothing armed, and is left without one.
    pub(crate) fn points(&self) -> Result<&[Point], Unseen> {
        if let Some(kept) = &self.kept {
            return Ok(&kept.points);
        }
        let ask = || match self.target().connect(&Entry::Forbidden) {
            Err(ClientError::NoProbe { .. }) => Ok(Vec::new()),
            reached => Ok(reached?.probe.points()?),
        };
        told(self.points.get_or_init(ask)).map(Vec::as_slice)
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

    pub(crate) fn threads(&self) -> Result<&[ThreadFacts], Unseen> {
        let read = || match self.kept {
            None => Ok(self.target().thread_facts()?),
            Some(_) => Err(not_kept()),
        };
        told(self.threads.get_or_init(read)).map(Vec::as_slice)
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.member.fmt(f)
    }
}

fn overwritten(table: &str, rows: u64) -> Unseen {
    let noun = if rows == 1 { "row was" } else { "rows were" };
    Unseen {
        message: format!("{rows} {noun} overwritten before the query read them: {table}"),
        hint: Some(format!(
            "a larger {} keeps rows longer; a narrower condition is read sooner",
            PROBING_STORE_BYTES.name
        )),
    }
}

/// What only the kernel could have told.
fn not_kept() -> Unseen {
    Unseen {
        message: "a capture that the process wrote itself does not have that".to_owned(),
        hint: Some("`probing -t PID capture` writes one that does".to_owned()),
    }
}

fn told<T>(read: &Result<T, Unseen>) -> Result<&T, Unseen> {
    read.as_ref().map_err(Clone::clone)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
