//! Candidates for a set of targets, and the process of a rank that users mean.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error as _;
use std::iter::successors;

use probing_process::procfs::processes::{self, Process};
use probing_proto::process::Pid;

use crate::agent::Endpoint;
use crate::error::{ClientError, SelectionError};
use crate::labels::ranks::Ranks;
use crate::labels::target_label::TargetLabel;
use crate::targets::set::{Member, Members};
use crate::targets::target::{Target, UnlistedAgent};

/// A process that may belong to the set.
pub(crate) struct Candidate {
    pub(crate) target: Target,
    pub(crate) pid: Option<Pid>,
    pub(crate) claim: Option<Claim>,
    /// How many ranks its job has.
    pub(crate) world_size: Option<u32>,
    /// Its own machine knows that it only inherited the rank.
    pub(crate) is_helper: bool,
    /// It has ended, and what it recorded is still there.
    pub(crate) is_dead: bool,
}

/// A rank that a process's variables name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) rank: u32,
    /// Which variable says so; the smaller counts more.
    pub(crate) strength: usize,
}

impl Candidate {
    pub(crate) fn of(process: &Process) -> Self {
        let claim = process.rank_claim();
        Self {
            target: Target::Local(process.pid),
            pid: Some(process.pid),
            claim: claim.map(|(rank, strength)| Claim { rank, strength }),
            world_size: process.world_size(),
            is_helper: false,
            is_dead: false,
        }
    }

    pub(crate) fn dead(target: Target, pid: Pid, rank: Option<u32>) -> Self {
        Self {
            pid: Some(pid),
            claim: rank.map(|rank| Claim { rank, strength: 0 }),
            is_dead: true,
            ..Self::unseen(target)
        }
    }

    pub(crate) fn unseen(target: Target) -> Self {
        let pid = match target {
            Target::Local(pid) => Some(pid),
            _ => None,
        };
        Self {
            target,
            pid,
            claim: None,
            world_size: None,
            is_helper: false,
            is_dead: false,
        }
    }

    pub(crate) fn unsaid(endpoint: &Endpoint, error: &ClientError) -> Self {
        let causes = successors(error.source(), |&cause| cause.source());
        let why = causes.fold(error.to_string(), |why, cause| format!("{why}: {cause}"));
        let endpoint = endpoint.clone();
        Self::unseen(Target::Unlisted(UnlistedAgent { endpoint, why }))
    }

    /// Whether it stands for those that an agent did not name: then nobody knows their ranks.
    pub(crate) fn is_unsaid(&self) -> bool {
        matches!(self.target, Target::Unlisted(_))
    }

    pub(crate) fn rank(&self) -> Option<u32> {
        self.claim.map(|claim| claim.rank)
    }

    pub(crate) fn member(self, bearer: Bearer) -> Member {
        let rank = self.rank();
        let who = match (rank, self.pid) {
            (Some(rank), _) if bearer == Bearer::Only => TargetLabel::Rank(rank),
            // Other machines, and other times, have the same pids.
            (_, Some(pid)) if !self.target.is_elsewhere() => TargetLabel::Pid(pid),
            _ => TargetLabel::Named(self.target.to_string()),
        };
        Member {
            who,
            target: self.target,
            pid: self.pid,
            rank,
        }
    }
}

/// Whether a process is what people mean by its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bearer {
    /// It and no other.
    Only,
    /// It and others: of several jobs.
    OneOfSeveral,
    /// It has no rank; or it only inherited the variable from the process that it helps (a data loader's worker), or
    /// only launches it.
    No,
}

/// Ranks that no living process has: the last that had each and left rows, and those that left nothing.
pub(crate) fn failed(
    candidates: Vec<Candidate>,
    bearers: &[Bearer],
) -> Result<Members, ClientError> {
    let borne = candidates.iter().zip(bearers);
    let living: Ranks = borne
        .filter(|(_, bearer)| **bearer != Bearer::No)
        .filter_map(|(candidate, _)| candidate.rank())
        .collect();
    let sizes = candidates.iter().map(|candidate| candidate.world_size);
    let expected = Ranks::first(sizes.max().flatten().unwrap_or(0));
    let (unsaid, candidates): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(Candidate::is_unsaid);
    let dead = candidates.into_iter().filter(|candidate| candidate.is_dead);
    let dead: BTreeMap<u32, Candidate> = dead
        .filter_map(|candidate| Some((candidate.rank()?, candidate)))
        .filter(|(rank, _)| !living.contains(*rank))
        .collect();
    let missing = expected
        .without(&living)
        .without(&dead.keys().copied().collect());
    match (dead.is_empty() && unsaid.is_empty(), missing.is_empty()) {
        (true, true) => Err(ClientError::Selection(SelectionError::NoneFailed)),
        (true, false) => Err(ClientError::Selection(SelectionError::NothingLeft {
            ranks: missing,
        })),
        (false, _) => {
            let all = dead.into_values().chain(unsaid);
            let all = all.map(|candidate| candidate.member(Bearer::Only));
            Ok(Members {
                all: all.collect(),
                missing,
            })
        }
    }
}

/// Which of these processes of one machine are what people mean by their ranks.
pub(crate) fn bear_ranks(processes: &[Process]) -> Vec<bool> {
    let candidates: Vec<Candidate> = processes.iter().map(Candidate::of).collect();
    let bearers = bearers(&candidates, processes::parent).into_iter();
    bearers.map(|bearer| bearer != Bearer::No).collect()
}

pub(crate) fn bearers(
    candidates: &[Candidate],
    parent: impl Fn(Pid) -> Option<Pid>,
) -> Vec<Bearer> {
    let mut by_rank: HashMap<u32, Vec<usize>> = HashMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let is_one = !candidate.is_helper && !candidate.is_dead;
        if let Some(rank) = candidate.rank().filter(|_| is_one) {
            by_rank.entry(rank).or_default().push(index);
        }
    }
    let mut bearers = vec![Bearer::No; candidates.len()];
    for mut claimants in by_rank.into_values() {
        let strength = |index: &usize| candidates[*index].claim.map(|claim| claim.strength);
        let strongest = claimants.iter().filter_map(strength).min();
        claimants.retain(|index| strength(index) == strongest);
        if claimants.len() > 1 {
            // Of other machines their agents have told.
            let local_pid = |index: &usize| {
                let candidate = &candidates[*index];
                candidate.pid.filter(|_| !candidate.target.is_elsewhere())
            };
            let pids: HashSet<Pid> = claimants.iter().filter_map(local_pid).collect();
            claimants.retain(|index| {
                let pid = local_pid(index);
                !pid.is_some_and(|pid| ancestors(pid, &parent).any(|above| pids.contains(&above)))
            });
        }
        let bearer = if claimants.len() == 1 {
            Bearer::Only
        } else {
            Bearer::OneOfSeveral
        };
        for index in claimants {
            bearers[index] = bearer;
        }
    }
    bearers
}

fn ancestors(pid: Pid, parent: impl Fn(Pid) -> Option<Pid>) -> impl Iterator<Item = Pid> {
    // Pids are given anew: what is read one after the other may lead in a circle.
    const DEEPEST: usize = 64;
    successors(parent(pid), move |pid| parent(*pid)).take(DEEPEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// pid, rank, strength of the claim, parent
    fn check(processes: &[(u32, u32, usize, u32)], expected: &[Bearer]) {
        let candidates: Vec<Candidate> = processes
            .iter()
            .map(|&(pid, rank, strength, _)| Candidate {
                target: Target::Local(Pid(pid)),
                pid: Some(Pid(pid)),
                claim: Some(Claim { rank, strength }),
                world_size: None,
                is_helper: false,
                is_dead: false,
            })
            .collect();
        let parent = |pid: Pid| {
            let process = processes.iter().find(|process| process.0 == pid.0)?;
            Some(Pid(process.3))
        };
        assert_eq!(bearers(&candidates, parent), expected);
    }

    #[test]
    fn a_rank_is_the_process_and_not_its_workers_or_its_launcher() {
        use Bearer::{No, OneOfSeveral, Only};
        check(&[(10, 0, 0, 1), (11, 1, 0, 1)], &[Only, Only]);
        // A data loader's worker, and a worker's worker, have inherited the variables.
        check(
            &[(10, 0, 0, 1), (20, 0, 0, 10), (30, 0, 0, 20)],
            &[Only, No, No],
        );
        // Slurm numbered the launcher; the launcher numbered the ranks.
        check(
            &[(10, 0, 1, 1), (20, 0, 0, 10), (21, 1, 0, 10)],
            &[No, Only, Only],
        );
        check(
            &[(10, 0, 0, 1), (20, 0, 0, 1)],
            &[OneOfSeveral, OneOfSeveral],
        );
        // A circle of parents ends.
        check(&[(10, 0, 0, 11), (11, 0, 0, 10)], &[No, No]);
    }
}
