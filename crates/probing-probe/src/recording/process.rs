//! What is said of this process beside its rings, for those who look when it is gone.

use std::collections::BTreeMap;
use std::fs;

use probing_proto::process::{Pid, ProcessKey};
use probing_proto::tables::schema::{Recorder, Storage};
use pyo3::prelude::*;

use crate::process::own_key::own_key;
use crate::recorders::collectives;

/// Words of the command line that are kept, and bytes of them.
const MAX_COMMAND: usize = 4096;

/// This process; start time 0 where that is not known.
pub(super) fn key() -> ProcessKey {
    own_key().unwrap_or(ProcessKey {
        pid: Pid(std::process::id()),
        start_ticks: 0,
    })
}

pub(super) fn recorder(
    py: Python<'_>,
    key: ProcessKey,
    budget_bytes: u64,
    storage: Storage,
) -> Recorder {
    let version = py.version_info();
    let command = fs::read("/proc/self/cmdline").unwrap_or_default();
    let command = &command[..command.len().min(MAX_COMMAND)];
    let words = command.strip_suffix(b"\0").unwrap_or(command);
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Recorder {
        pid: key.pid,
        start_ticks: key.start_ticks,
        boot_id: boot_id.trim().to_owned(),
        rank: collectives::rank(),
        python: Some(format!(
            "{}.{}.{}",
            version.major, version.minor, version.patch
        )),
        command: words
            .split(|&byte| byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
        budget_bytes,
        storage,
        left_out: BTreeMap::new(),
    }
}
