//! The set of targets that a command line selects.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use probing_capture::{Capture, EXTENSION};
use probing_process::procfs::processes::{self, Process};
use probing_proto::process::Pid;
use probing_proto::report::{DeadProcess, SetReport, TargetReport};

use crate::agent::{Endpoint, Keys, Node};
use crate::error::{ClientError, SelectionError};
use crate::labels::ranks::{RankSelector, Ranks};
use crate::labels::target_label::TargetLabel;
use crate::parallel::fan_out::{FanOutLimits, fan_out};
use crate::probe::Probe;
use crate::probe::connection::CONNECT_TIMEOUT;
use crate::storage::recording::Recording;
use crate::targets::candidate::{Bearer, Candidate, Claim, bearers, failed};
use crate::targets::proc_info::{host_name, started_at};
use crate::targets::roles::retain_programs;
use crate::targets::target::{NotATarget, Remote, Target};

/// For an agent to say who is there.
const NODE_PATIENCE: Duration = Duration::from_secs(15);

/// One word after `-t`. The only place that parses a target; what it parses, it prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TargetSelector {
    /// `all`: every Python process of this user.
    All,
    /// `host:8080`: the processes that an agent offers.
    Node(Endpoint),
    One(Target),
}

const ALL: &str = "all";
const SOCKET: &str = "unix:";

impl FromStr for TargetSelector {
    type Err = NotATarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => return Err(NotATarget::Empty),
            ALL => return Ok(Self::All),
            _ => {}
        }
        if let Some(path) = text.strip_prefix(SOCKET) {
            return if path.is_empty() {
                Err(NotATarget::NoPath)
            } else {
                Ok(Self::One(Target::Socket(path.into())))
            };
        }
        if let Ok(endpoint) = text.parse() {
            return Ok(Self::Node(endpoint));
        }
        let is_capture = |path: &Path| path.extension().is_some_and(|it| it == EXTENSION);
        Ok(Self::One(if let Ok(pid) = text.parse() {
            Target::Local(pid)
        } else if let Some(remote) = remote(text) {
            Target::Remote(remote)
        } else if is_capture(Path::new(text)) {
            Target::Capture(text.into())
        } else {
            Target::Name(text.to_owned())
        }))
    }
}

/// `host:8080/4242`. Its agent has no keys yet: [`TargetSet::with_keys`].
fn remote(text: &str) -> Option<Remote> {
    let (endpoint, pid) = text.rsplit_once('/')?;
    Some(Remote {
        node: Arc::new(Node::new(endpoint.parse().ok()?, Keys::default())),
        pid: pid.parse().ok()?,
    })
}

impl fmt::Display for TargetSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str(ALL),
            Self::Node(endpoint) => endpoint.fmt(f),
            Self::One(target) => target.fmt(f),
        }
    }
}

impl TargetSelector {
    /// The agent that it names.
    fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Node(endpoint) => Some(endpoint),
            Self::One(Target::Remote(remote)) => Some(remote.node.endpoint()),
            Self::All | Self::One(_) => None,
        }
    }
}

/// What is written behind one `-t`, or in `PROBING_TARGET`: `4242`, `4242,4243`, `all`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSelectors(Vec<TargetSelector>);

/// The processes that a command is for, as the user named them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetSet {
    choices: Vec<TargetSelector>,
    ranks: Option<RankSelector>,
    /// The agents among them.
    nodes: Vec<Arc<Node>>,
}

/// One process of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// How answers call it.
    pub who: TargetLabel,
    pub target: Target,
    /// What is known of it before it is asked.
    pub pid: Option<Pid>,
    pub rank: Option<u32>,
}

/// One that has ended, and whose rows are still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTarget {
    pub member: Member,
    /// What its machine is called.
    pub host: String,
    /// When it was started, in nanoseconds, if that was here.
    pub started_nanos: Option<u64>,
}

/// The processes of a set, as they are now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// Ranks ascending, then pids.
    pub all: Vec<Member>,
    /// Ranks that were asked for and that no process has.
    pub missing: Ranks,
}

impl FromStr for TargetSelectors {
    type Err = NotATarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',')
            .map(|word| word.trim().parse())
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Members {
    /// Those of this machine, and those of each agent.
    pub fn by_node(&self) -> (Self, Vec<(Arc<Node>, Self)>) {
        let none = || Self {
            all: Vec::new(),
            missing: self.missing.clone(),
        };
        let (mut here, mut nodes) = (none(), Vec::<(Arc<Node>, Self)>::new());
        for member in &self.all {
            let Target::Remote(remote) = &member.target else {
                here.all.push(member.clone());
                continue;
            };
            let known = nodes.iter().position(|(node, _)| *node == remote.node);
            let place = known.unwrap_or_else(|| {
                nodes.push((Arc::clone(&remote.node), none()));
                nodes.len() - 1
            });
            nodes[place].1.all.push(member.clone());
        }
        (here, nodes)
    }

    /// Each with its report, or what went wrong with it; in their order.
    pub fn report<R>(&self, answers: impl IntoIterator<Item = Result<R, String>>) -> SetReport<R> {
        let each = self.all.iter().zip(answers);
        let targets = each.map(|(member, answer)| {
            let (report, error) = match answer {
                Ok(report) => (Some(report), None),
                Err(error) => (None, Some(error)),
            };
            TargetReport {
                target: member.target.to_string(),
                pid: member.pid,
                rank: member.rank,
                error,
                report,
            }
        });
        SetReport {
            targets: targets.collect(),
            missing_ranks: (!self.missing.is_empty()).then(|| self.missing.to_string()),
        }
    }

    /// The agent that all of them are reached through, if it is one.
    pub fn node(&self) -> Option<&Arc<Node>> {
        let node = |member: &'_ Member| match &member.target {
            Target::Remote(remote) => Some(Arc::clone(&remote.node)),
            _ => None,
        };
        let first = match &self.all.first()?.target {
            Target::Remote(remote) => &remote.node,
            _ => return None,
        };
        let is_same = |member: &Member| node(member).is_some_and(|node| node == *first);
        self.all.iter().all(is_same).then_some(first)
    }
}

impl TargetSet {
    /// With `ranks`, those of the chosen (of all when none are) that have one of these ranks.
    pub fn new(
        choices: impl IntoIterator<Item = TargetSelectors>,
        ranks: Option<RankSelector>,
    ) -> Self {
        let choices = choices
            .into_iter()
            .flat_map(|TargetSelectors(choices)| choices);
        let set = Self {
            choices: choices.collect(),
            ranks,
            nodes: Vec::new(),
        };
        set.with_keys(&Keys::default())
    }

    /// These processes of this machine, or those of them that have such a rank.
    pub fn of_pids(pids: Vec<Pid>, ranks: Option<RankSelector>) -> Self {
        let one = |pid| TargetSelector::One(Target::Local(pid));
        Self {
            choices: pids.into_iter().map(one).collect(),
            ranks,
            nodes: Vec::new(),
        }
    }

    /// With what opens the agents among them.
    #[must_use]
    pub fn with_keys(mut self, keys: &Keys) -> Self {
        self.nodes.clear();
        for choice in &mut self.choices {
            let Some(endpoint) = choice.endpoint() else {
                continue;
            };
            let known = self.nodes.iter().find(|node| node.endpoint() == endpoint);
            let node = known.cloned().unwrap_or_else(|| {
                let node = Arc::new(Node::new(endpoint.clone(), keys.clone()));
                self.nodes.push(Arc::clone(&node));
                node
            });
            if let TargetSelector::One(Target::Remote(remote)) = choice {
                remote.node = node;
            }
        }
        self
    }

    /// The agents among them.
    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// Whether the user named nothing.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty() && self.ranks.is_none()
    }

    /// Whether the user chose by rank.
    pub fn is_by_rank(&self) -> bool {
        self.ranks.is_some()
    }

    /// The target, when the user's words can only mean one.
    pub fn one(&self) -> Option<Target> {
        match (self.choices.as_slice(), &self.ranks) {
            ([TargetSelector::One(target)], None) => Some(target.clone()),
            _ => None,
        }
    }

    /// The target of a command that is for one; an error lists them when there are several.
    pub fn sole(&self) -> Result<Target, ClientError> {
        if let Some(target) = self.one() {
            return Ok(target);
        }
        let mut members = self.members()?.all;
        if members.len() == 1 {
            return Ok(members.remove(0).target);
        }
        let group = members.iter().map(|member| &member.who).collect();
        Err(ClientError::Selection(SelectionError::OnlyOne { group }))
    }

    /// Looks who is there. A target that cannot be reached is a member, too: asking it tells why.
    pub fn members(&self) -> Result<Members, ClientError> {
        let mut candidates = self.candidates()?;
        let mut seen = HashSet::new();
        candidates
            .retain(|candidate| candidate.is_dead || seen.insert(candidate.target.to_string()));
        let bearers = bearers(&candidates, processes::parent);
        if self.ranks == Some(RankSelector::Failed) {
            return failed(candidates, &bearers);
        }
        let sizes = candidates
            .iter()
            .filter_map(|candidate| candidate.world_size);
        let expected = match &self.ranks {
            Some(RankSelector::These(ranks)) => ranks.clone(),
            Some(RankSelector::All) => Ranks::first(sizes.max().unwrap_or(0)),
            Some(RankSelector::Failed) | None => Ranks::default(),
        };
        let (mut all, mut found) = (Vec::new(), Vec::new());
        for (candidate, bearer) in candidates.into_iter().zip(bearers) {
            if let Some(ranks) = &self.ranks
                && !candidate.is_unsaid()
            {
                let is_wanted = |rank: &u32| match ranks {
                    RankSelector::These(ranks) => ranks.contains(*rank),
                    RankSelector::All | RankSelector::Failed => true,
                };
                let wanted = candidate.rank().filter(is_wanted);
                if wanted.is_none() || bearer == Bearer::No {
                    continue;
                }
                found.extend(wanted);
            }
            all.push(candidate.member(bearer));
        }
        let missing = expected.without(&found.into_iter().collect());
        if all.is_empty() {
            return Err(ClientError::Selection(SelectionError::NobodyChosen {
                ranks: missing,
            }));
        }
        all.sort_by(|one, other| one.who.cmp(&other.who));
        Ok(Members { all, missing })
    }

    /// Processes that have ended and left rows in this table, where everybody is meant: of this machine, and of agents that are
    /// named. Not those whose numbers others have by now.
    pub fn dead_with(&self, table: &str) -> Vec<EndedTarget> {
        let is_any_rank = matches!(self.ranks, None | Some(RankSelector::All));
        if self.is_empty() || !is_any_rank {
            return Vec::new();
        }
        let is_everybody_here =
            self.choices.is_empty() || self.choices.contains(&TargetSelector::All);
        let mut dead = if is_everybody_here {
            dead_here(table)
        } else {
            Vec::new()
        };
        let is_everybody = |node: &&Arc<Node>| {
            let everybody = TargetSelector::Node(node.endpoint().clone());
            self.choices.contains(&everybody)
        };
        let nodes: Vec<Arc<Node>> = self.nodes.iter().filter(is_everybody).cloned().collect();
        let table = table.to_owned();
        // One that cannot be asked is told when the living are.
        let elsewhere = fan_out(&nodes, FanOutLimits::within(NODE_PATIENCE), move |node| {
            dead_on_node(node, &table).unwrap_or_default()
        });
        dead.extend(elsewhere.into_iter().flatten().flatten());
        dead
    }

    fn candidates(&self) -> Result<Vec<Candidate>, ClientError> {
        let everybody = [TargetSelector::All];
        let choices = match self.choices.as_slice() {
            [] => &everybody,
            choices => choices,
        };
        let patience = if self.nodes.is_empty() {
            2 * CONNECT_TIMEOUT
        } else {
            NODE_PATIENCE
        };
        let (ranks, nodes) = (self.ranks.clone(), self.nodes.clone());
        let found = fan_out(choices, FanOutLimits::within(patience), move |choice| {
            candidates_of(choice, &nodes, ranks.as_ref())
        });
        let mut all = Vec::new();
        let is_here = |choice: &TargetSelector| choice.endpoint().is_none();
        if self.ranks == Some(RankSelector::Failed) && choices.iter().any(is_here) {
            let dead = Recording::of_the_dead();
            all.extend(
                dead.iter()
                    .map(|dead| Candidate::dead(Target::Local(dead.pid), dead.pid, dead.rank())),
            );
        }
        for (found, choice) in found.into_iter().zip(choices) {
            match (found, choice.endpoint(), choice) {
                (found, Some(endpoint), _) => {
                    match found.unwrap_or(Err(ClientError::TooLong { patience })) {
                        // The others need not suffer for one that is down.
                        Err(error) if choices.len() > 1 => {
                            all.push(Candidate::unsaid(endpoint, &error));
                        }
                        found => all.extend(found?),
                    }
                }
                (Some(found), None, _) => all.extend(found?),
                (None, None, TargetSelector::One(target)) => {
                    all.push(Candidate::unseen(target.clone()));
                }
                (None, None, _) => {}
            }
        }
        Ok(all)
    }
}

fn candidates_of(
    choice: &TargetSelector,
    nodes: &[Arc<Node>],
    ranks: Option<&RankSelector>,
) -> Result<Vec<Candidate>, ClientError> {
    let target = match choice {
        TargetSelector::All => {
            return Ok(ours(&processes::all_python()).map(Candidate::of).collect());
        }
        TargetSelector::Node(endpoint) => {
            let node = nodes.iter().find(|node| node.endpoint() == endpoint);
            return node.map_or(Ok(Vec::new()), |node| on_node(node, None, ranks));
        }
        TargetSelector::One(Target::Remote(Remote { node, pid })) => {
            return on_node(node, Some(*pid), ranks);
        }
        TargetSelector::One(target) => target,
    };
    let found = match target {
        Target::Name(name) => {
            let mut named = processes::all_python();
            named.retain(|process| process.is_named(name));
            retain_programs(&mut named);
            // A rank tells those of one name apart; without, there must be only one.
            let is_clear = ranks.is_some() || named.len() == 1;
            is_clear.then(|| named.iter().map(Candidate::of).collect())
        }
        Target::Local(pid) => Process::read(*pid).map(|process| vec![Candidate::of(&process)]),
        Target::Socket(path) => Probe::at(path, CONNECT_TIMEOUT).ok().map(|probe| {
            let rank = probe.hello().rank;
            vec![Candidate {
                claim: rank.map(|rank| Claim { rank, strength: 0 }),
                ..Candidate::unseen(target.clone())
            }]
        }),
        Target::Capture(path) => {
            let capture = Capture::open(path)?;
            let (pid, rank) = (capture.manifest().pid, capture.manifest().rank);
            Some(vec![Candidate {
                pid: Some(pid),
                claim: rank.map(|rank| Claim { rank, strength: 0 }),
                ..Candidate::unseen(target.clone())
            }])
        }
        Target::Remote(_) | Target::Unlisted(_) => None,
    };
    Ok(found.unwrap_or_else(|| vec![Candidate::unseen(target.clone())]))
}

/// Those that an agent offers, or the one that is meant.
fn on_node(
    node: &Arc<Node>,
    pid: Option<Pid>,
    ranks: Option<&RankSelector>,
) -> Result<Vec<Candidate>, ClientError> {
    let report = node.targets(ranks == Some(&RankSelector::Failed))?;
    let mut offered = report.targets;
    let remote = |pid| {
        Target::Remote(Remote {
            node: Arc::clone(node),
            pid,
        })
    };
    offered.retain(|target| match pid {
        Some(pid) => target.process.pid == pid,
        None => target.member,
    });
    if let (Some(pid), []) = (pid, offered.as_slice()) {
        return Ok(vec![Candidate::unseen(remote(pid))]);
    }
    let candidate = |target: probing_proto::agent::NodeTarget| {
        let rank = target.process.rank;
        Candidate {
            target: remote(target.process.pid),
            pid: Some(target.process.pid),
            claim: rank.map(|rank| Claim { rank, strength: 0 }),
            world_size: target.world_size,
            is_helper: !target.bears_rank,
            is_dead: false,
        }
    };
    let dead = report.dead.into_iter();
    let dead = dead.map(|dead| Candidate::dead(remote(dead.pid), dead.pid, dead.rank));
    Ok(dead.chain(offered.into_iter().map(candidate)).collect())
}

fn has_rows(dead: &DeadProcess, table: &str) -> bool {
    let mut tables = dead.tables.iter();
    tables.any(|recorded| recorded.name == table && recorded.rows > 0)
}

fn dead_here(table: &str) -> Vec<EndedTarget> {
    let is_nobody = |dead: &Recording| processes::parent(dead.pid).is_none();
    let host = host_name();
    let ended = |dead: Recording| EndedTarget {
        member: Candidate::dead(Target::Local(dead.pid), dead.pid, dead.rank())
            .member(Bearer::OneOfSeveral),
        host: host.clone(),
        started_nanos: Some(started_at(dead.key.start_ticks)),
    };
    let dead = Recording::of_the_dead().into_iter();
    dead.filter(|dead| is_nobody(dead) && has_rows(&dead.report(), table))
        .map(ended)
        .collect()
}

fn dead_on_node(node: &Arc<Node>, table: &str) -> Result<Vec<EndedTarget>, ClientError> {
    let report = node.targets(true)?;
    let is_there = |pid: Pid| report.targets.iter().any(|it| it.process.pid == pid);
    let ended = |dead: &DeadProcess| {
        let target = Target::Remote(Remote {
            node: Arc::clone(node),
            pid: dead.pid,
        });
        EndedTarget {
            member: Candidate::dead(target, dead.pid, dead.rank).member(Bearer::OneOfSeveral),
            host: report.host.clone(),
            started_nanos: None,
        }
    };
    let dead = report.dead.iter();
    let dead = dead.filter(|dead| !is_there(dead.pid) && has_rows(dead, table));
    Ok(dead.map(ended).collect())
}

/// This user's, without ourselves.
fn ours(processes: &[Process]) -> impl Iterator<Item = &Process> {
    let uid = rustix::process::geteuid().as_raw();
    let own = Pid(std::process::id());
    processes
        .iter()
        .filter(move |process| process.uid == uid && process.pid != own)
}

#[cfg(test)]
mod tests;
