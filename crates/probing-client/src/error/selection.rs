//! Errors of a command line that names no target, too many or the wrong ones.

use probing_proto::message::threads::ThreadSelector;
use probing_proto::process::Pid;

use crate::labels::ranks::Ranks;
use crate::labels::target_label::Group;

/// Why a selection of targets, or of a thread of one, selects none or too many.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    #[error("no Python process is named: {name}")]
    NoneNamed { name: String },
    #[error("{} Python processes are named {name}:{}", .matches.len(), listed(.matches))]
    SeveralNamed {
        name: String,
        matches: Vec<(Pid, String)>,
    },
    /// A command that is for one target was given several.
    #[error("this command takes one target, and these are {}: {group}", .group.count())]
    OnlyOne { group: Group },
    /// Code would run on several targets, and nobody said that it should.
    #[error("this would run on {} targets: {group}", .group.count())]
    NotExplicit { group: Group },
    #[error("{}", nobody(.ranks))]
    NobodyChosen { ranks: Ranks },
    /// Nothing is left of those that have failed.
    #[error("no process here has these ranks, and they left no rows: {ranks}")]
    NothingLeft { ranks: Ranks },
    /// Nobody is missing, as far as can be told.
    #[error("no rank has failed")]
    NoneFailed,
    #[error("no thread is named {wanted}; there are: {}", .threads.join(", "))]
    NoThread {
        wanted: ThreadSelector,
        /// Names and ids of those that there are.
        threads: Vec<String>,
    },
    #[error("the main thread runs no Python now")]
    NoMainThread,
}

impl SelectionError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoneNamed { .. } => "`probing list` shows the processes that can be looked at",
            Self::SeveralNamed { .. } => {
                "name one by pid: -t PID; or choose by rank: --ranks 0,2-5; several pids make a set: -t PID,PID"
            }
            Self::OnlyOne { .. } => {
                "name one by pid: -t PID; or by rank: --ranks N; to debug the first that reaches a place, set a \
                 breakpoint in all of them (`break PLACE`): `stops` shows which it is"
            }
            Self::NotExplicit { .. } => {
                "add --all to run it on every one of them, or choose with --ranks 0,2-5"
            }
            Self::NobodyChosen { .. } | Self::NoneFailed => {
                "`probing list` shows the processes that can be looked at, and their ranks; `probing list --dead` \
                 those that have ended and left rows, which -t PID selects"
            }
            Self::NothingLeft { .. } => {
                "they have ended, or run on another machine: add -t HOST:PORT. A process that was started with \
                 PROBING=1 leaves what it recorded; `--ranks all backtrace` shows where the others are"
            }
            Self::NoMainThread => "`backtrace --all` shows the other threads",
            Self::NoThread { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

fn listed(matches: &[(Pid, String)]) -> String {
    matches
        .iter()
        .map(|(pid, command)| format!("\n  {pid}  {command}"))
        .collect()
}

fn nobody(ranks: &Ranks) -> String {
    if ranks.is_empty() {
        "no Python process of this user can be seen from here".to_owned()
    } else {
        format!("no target has one of these ranks: {ranks}")
    }
}
