//! The agents of this user on this machine, by what they say of themselves in the private folder.

use std::fs;
use std::path::PathBuf;

use probing_process::processes;
use probing_proto::agent::{AgentState, Role, tokens_in};
use probing_proto::env::PROBING_DIR;
use probing_proto::paths;
use probing_proto::process::ProcessKey;

/// An agent that has been here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub port: u16,
    pub state: AgentState,
    /// Whether its process lives.
    pub lives: bool,
}

/// All of them, by their ports.
pub fn agents_here() -> Vec<Standing> {
    let Some(runtime_dir) = private_dir() else {
        return Vec::new();
    };
    let entries = fs::read_dir(paths::agents_dir(&runtime_dir));
    let port = |name: &str| name.strip_suffix(".json")?.parse().ok();
    let mut ports: Vec<u16> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| port(entry.file_name().to_str()?))
        .collect();
    ports.sort_unstable();
    ports.into_iter().filter_map(at).collect()
}

/// The one on this port.
pub(crate) fn at(port: u16) -> Option<Standing> {
    let text = fs::read(paths::agent_state_path(&private_dir()?, port)).ok()?;
    let state: AgentState = serde_json::from_slice(&text).ok()?;
    let key = ProcessKey {
        pid: state.pid,
        start_ticks: state.start_ticks,
    };
    Some(Standing {
        port,
        lives: processes::is_alive(key),
        state,
    })
}

/// The token with which this user's own agents let in, the one that may do most.
pub(crate) fn token() -> Option<String> {
    let text = fs::read_to_string(paths::token_path(&private_dir()?)).ok()?;
    let mut tokens = tokens_in(&text);
    tokens.sort_by_key(|(role, _)| *role != Role::Control);
    Some(tokens.into_iter().next()?.1)
}

/// What is written there, nobody else has written.
pub(crate) fn private_dir() -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let runtime_dir = paths::runtime_dir(uid, PROBING_DIR.value());
    let metadata = fs::symlink_metadata(&runtime_dir).ok()?;
    paths::check_private(&runtime_dir, &metadata, uid).ok()?;
    Some(runtime_dir)
}
