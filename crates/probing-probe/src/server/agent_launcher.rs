//! The agent that `PROBING_PORT` asks for: a program of its own, which this only starts.
//!
//! Nothing of it is the host's: it is no child that the program could wait for, has none of its files, and outlives it.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use probing_proto::agent::AgentState;
use probing_proto::env::{
    HOME, PROBING_ALLOW, PROBING_COMMAND, PROBING_DIR, PROBING_PACKAGE, PROBING_PORT, PROBING_TLS,
    PROBING_TOKEN, Variable, XDG_STATE_HOME,
};
use probing_proto::paths;
use probing_proto::process::Stat;

use crate::process::daemon;

/// Beside the command: it has what an agent needs.
const PROGRAM: &str = "probing-engine";

/// All that an agent is told of the program's environment.
const PASSED_VARIABLES: [Variable; 7] = [
    PROBING_DIR,
    PROBING_TOKEN,
    PROBING_TLS,
    PROBING_ALLOW,
    PROBING_PACKAGE,
    HOME,
    XDG_STATE_HOME,
];

/// What is to be started.
#[derive(Debug)]
pub(crate) struct AgentLaunch {
    listen: OsString,
    /// Where the program may be.
    folders: Vec<PathBuf>,
}

impl AgentLaunch {
    /// What the environment asks for. `prefix` is where the interpreter's own programs are.
    pub(crate) fn here(prefix: Option<PathBuf>) -> Option<Self> {
        let listen = PROBING_PORT.value()?;
        let command = PROBING_COMMAND.value().map(PathBuf::from);
        let named = command.and_then(|command| Some(command.parent()?.to_owned()));
        // <prefix>/lib/python3.12/site-packages/probing/_probe.abi3.so
        let library = daemon::own_library();
        let installed = library.and_then(|path| Some(path.ancestors().nth(5)?.join("bin")));
        let beside = prefix.map(|prefix| prefix.join("bin"));
        Some(Self {
            listen,
            folders: named.into_iter().chain(installed).chain(beside).collect(),
        })
    }

    /// Starts it, unless it is there. What goes wrong is for the agent to tell, or seen by its absence.
    pub(crate) fn start(&self) {
        if self.port().is_some_and(is_there) {
            return;
        }
        let programs = self.folders.iter().map(|folder| folder.join(PROGRAM));
        let Some(program) = programs.into_iter().find(|program| program.is_file()) else {
            return;
        };
        let arguments = [
            program.as_os_str(),
            OsStr::new("agent"),
            OsStr::new("--wanted"),
            OsStr::new("--listen"),
            &self.listen,
        ];
        let variables = PASSED_VARIABLES.iter().filter_map(|variable| {
            let mut entry = OsString::from(variable.name);
            entry.push("=");
            entry.push(variable.value()?);
            Some(entry)
        });
        let text = |text: &OsStr| CString::new(text.as_bytes()).ok();
        let arguments: Option<Vec<CString>> = arguments.into_iter().map(text).collect();
        let variables: Option<Vec<CString>> = variables
            .map(|entry| CString::new(entry.into_vec()).ok())
            .collect();
        if let (Some(arguments), Some(variables)) = (arguments, variables) {
            daemon::start(&arguments, &variables);
        }
    }

    fn port(&self) -> Option<u16> {
        let listen = self.listen.to_str()?;
        listen.rsplit(':').next()?.parse().ok()
    }
}

/// Whether an agent of this user has the port, by what it says of itself.
fn is_there(port: u16) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    let folders = paths::runtime_dirs(uid, PROBING_DIR.value()).into_iter();
    // What another user has written there counts for nothing.
    let mut folders = folders.filter(|folder| {
        let metadata = fs::symlink_metadata(folder);
        metadata.is_ok_and(|metadata| paths::check_private(folder, &metadata, uid).is_ok())
    });
    folders.any(|folder| is_alive(&paths::agent_state_path(&folder, port)))
}

fn is_alive(state_path: &Path) -> bool {
    state(state_path).is_some_and(|state| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", state.pid));
        let stat = stat.ok().and_then(|line| Stat::parse(&line));
        stat.is_some_and(|stat| stat.start_ticks == state.start_ticks && !stat.is_dead())
    })
}

fn state(path: &Path) -> Option<AgentState> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
