//! Which targets a request is for.

use axum::http::StatusCode;
use probing_client::{
    ClientError, LocalError, Members, RankSelector, Recording, SelectionError, TargetSet,
    is_offered, offered,
};
use probing_proto::agent::RefusalKind;
use probing_proto::message::Failure;
use probing_proto::process::Pid;

use crate::http::refusal::Refused;

/// As a request names them.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestedTargets<'a> {
    pub(crate) rank: Option<u32>,
    pub(crate) ranks: Option<&'a str>,
    pub(crate) pid: Option<Pid>,
    pub(crate) pids: &'a [Pid],
}

impl RequestedTargets<'_> {
    /// Those that are meant; all that the agent offers, when none is named.
    pub(crate) fn members(&self) -> Result<Members, Refused> {
        let named = [
            self.rank.is_some(),
            self.ranks.is_some(),
            self.pid.is_some(),
            !self.pids.is_empty(),
        ];
        if named.iter().filter(|is_named| **is_named).count() > 1 {
            return Err(Refused::bad("rank, ranks and pid exclude each other"));
        }
        let pids: Vec<Pid> = self.pid.iter().chain(self.pids).copied().collect();
        if !pids.is_empty() {
            return of_pids(&pids);
        }
        let ranks = match (self.rank, self.ranks) {
            (Some(rank), _) => Some(RankSelector::These([rank].into_iter().collect())),
            (None, Some(ranks)) => Some(
                ranks
                    .parse()
                    .map_err(|error| Refused::bad(format!("{error}")))?,
            ),
            (None, None) => None,
        };
        let pids = offered();
        if pids.is_empty() && ranks != Some(RankSelector::Failed) {
            return Err(nobody());
        }
        let set = TargetSet::of_pids(pids, ranks);
        set.members().map_err(|error| refused(&error))
    }

    /// Whether it can only mean one.
    pub(crate) fn is_one(&self) -> bool {
        self.rank.is_some() || self.pid.is_some()
    }

    /// Whether the request says whom it is for.
    pub(crate) fn is_explicit(&self) -> bool {
        self.is_one() || self.ranks.is_some() || !self.pids.is_empty()
    }
}

fn nobody() -> Refused {
    Refused::new(
        StatusCode::NOT_FOUND,
        "no Python process of this agent's user is here",
    )
    .hint("start one with PROBING=1, or any: `GET /targets` shows them")
    .kind(RefusalKind::Ended)
}

pub(crate) fn no_target(pid: Pid) -> Refused {
    Refused::new(StatusCode::NOT_FOUND, format!("no such target: {pid}"))
        .hint("`GET /targets` shows them")
        .kind(RefusalKind::Ended)
}

fn of_pids(pids: &[Pid]) -> Result<Members, Refused> {
    let mut dead = None;
    for pid in pids {
        let mut is_dead = || {
            let dead = dead.get_or_insert_with(Recording::of_the_dead);
            dead.iter().any(|recording| recording.pid == *pid)
        };
        if !is_offered(*pid) && !is_dead() {
            return Err(no_target(*pid));
        }
    }
    let set = TargetSet::of_pids(pids.to_vec(), None);
    set.members().map_err(|error| refused(&error))
}

/// What a target's trouble is to who asked for it.
pub(crate) fn refused(error: &ClientError) -> Refused {
    let (status, kind) = match error {
        error if error.is_end() => (StatusCode::NOT_FOUND, Some(RefusalKind::Ended)),
        ClientError::Ended { .. } => (StatusCode::NOT_FOUND, Some(RefusalKind::Ended)),
        error if error.is_no_thread() => (StatusCode::NOT_FOUND, Some(RefusalKind::NoThread)),
        ClientError::Selection(
            SelectionError::NobodyChosen { .. }
            | SelectionError::NothingLeft { .. }
            | SelectionError::NoneFailed,
        ) => (StatusCode::NOT_FOUND, None),
        ClientError::Selection(
            SelectionError::NotExplicit { .. } | SelectionError::OnlyOne { .. },
        ) => (StatusCode::CONFLICT, None),
        ClientError::NoProbe { .. } => (StatusCode::CONFLICT, Some(RefusalKind::NoProbe)),
        ClientError::NotDone(_) => (StatusCode::CONFLICT, Some(RefusalKind::NotDone)),
        ClientError::Local(LocalError::Stopped { .. })
        | ClientError::Silent { .. }
        | ClientError::GivenUp { .. }
        | ClientError::Unfinished { .. }
        | ClientError::TooLong { .. } => (StatusCode::GATEWAY_TIMEOUT, None),
        _ => (StatusCode::BAD_GATEWAY, None),
    };
    let mut refused = Refused::new(status, error.to_string());
    refused.refusal.failure = Failure {
        error: error.to_string(),
        hint: error.hint(),
    };
    refused.refusal.kind = kind;
    refused
}
