//! The restart of agents that programs asked for and that have ended.

use std::ffi::OsString;

use probing_process::procfs::processes;
use probing_proto::env::{PROBING_ALLOW, PROBING_PORT, PROBING_TLS, PROBING_TOKEN, Variable};
use probing_proto::process::Pid;

use crate::agent::local::{self, LocalAgent};

/// One that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingAgent {
    /// As `--listen` takes it.
    pub listen: OsString,
    /// What the program that asked for it told it: names and values.
    pub variables: Vec<(&'static str, OsString)>,
}

/// What this user's programs say in `PROBING_PORT`, and who says it.
pub fn wanted_agents() -> Vec<(Pid, OsString)> {
    let uid = rustix::process::geteuid().as_raw();
    let programs = processes::all_python().into_iter();
    let programs = programs.filter(|program| program.uid == uid);
    let wanted = programs
        .filter_map(|program| Some((program.pid, PROBING_PORT.value_in(&program.environ)?)));
    wanted.collect()
}

/// Those that were killed and whose programs still live.
pub fn missing_agents() -> Vec<MissingAgent> {
    let is_missing = |standing: &LocalAgent| {
        let state = &standing.state;
        state.wanted && state.trouble.is_none() && !standing.lives
    };
    let mut missing = local::local_agents();
    missing.retain(is_missing);
    if missing.is_empty() {
        return Vec::new();
    }
    let programs = processes::all_python();
    let uid = rustix::process::geteuid().as_raw();
    let found = missing.iter().filter_map(|standing| {
        let port = standing.port.to_string();
        let mut programs = programs.iter().filter(|program| program.uid == uid);
        programs.find_map(|program| {
            let value = |variable: Variable| variable.value_in(&program.environ);
            let listen = value(PROBING_PORT)?;
            let asked = listen.to_str()?.rsplit(':').next()? == port;
            let told = [PROBING_TOKEN, PROBING_TLS, PROBING_ALLOW];
            let variables = told
                .into_iter()
                .filter_map(|variable| Some((variable.name, value(variable)?)));
            asked.then(|| MissingAgent {
                variables: variables.collect(),
                listen,
            })
        })
    });
    found.collect()
}
