//! Every environment variable that Probing reads, declared once.
//!
//! `docs/environment.md` is made from [`ALL`]; a test fails when it is stale.

use std::ffi::OsString;

/// One environment variable: its name, who reads it, and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    pub name: &'static str,
    pub read_by: ReadBy,
    pub doc: &'static str,
}

/// In whose environment a variable has its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadBy {
    /// The program under observation: set it where `python` is started.
    Target,
    /// The `probing` command.
    Command,
    /// Both, and they must agree to meet.
    Both,
    /// The project's own tests and scripts.
    Development,
}

pub const PROBING: Variable = Variable {
    name: "PROBING",
    read_by: ReadBy::Target,
    doc: "`1` starts the probe before the program's first line. Unset, empty or `0`: nothing of ours runs. \
          The start-up hook comes with the package, or with `probing run`.",
};
pub const PROBING_PORT: Variable = Variable {
    name: "PROBING_PORT",
    read_by: ReadBy::Target,
    doc: "Starts the probe as `PROBING=1` does (`PROBING=0` wins), and the node's agent on this port, unless it is \
          there already: `8080`, or `127.0.0.1:8080` for this machine only. See docs/remote.md.",
};
pub const PROBING_TOKEN: Variable = Variable {
    name: "PROBING_TOKEN",
    read_by: ReadBy::Both,
    doc: "The secret that authenticates a command at an agent, at least 16 characters. The agent accepts it beside the \
          ones that it makes; the command proves to the agents that `-t HOST:PORT` names that it knows it.",
};
pub const PROBING_TLS: Variable = Variable {
    name: "PROBING_TLS",
    read_by: ReadBy::Both,
    doc: "What `probing agent --tls` takes: `auto`, `off` (on loopback only) or `CERTIFICATE,KEY`. For the command, \
          `off` lets it speak plain text to a loopback address whose listener belongs to the same user or to root.",
};
pub const PROBING_ALLOW: Variable = Variable {
    name: "PROBING_ALLOW",
    read_by: ReadBy::Target,
    doc: "The address ranges that may reach the agent, separated by commas: `10.0.0.0/8,fd00::/8`. Without it, all.",
};
pub const PROBING_CA: Variable = Variable {
    name: "PROBING_CA",
    read_by: ReadBy::Command,
    doc: "A PEM file with certificate authorities, as for `--ca`: only agents whose certificates they have signed for \
          the agent's name are trusted.",
};
pub const PROBING_FINGERPRINT: Variable = Variable {
    name: "PROBING_FINGERPRINT",
    read_by: ReadBy::Command,
    doc: "The SHA-256 of the agent's certificate, as `--fingerprint` takes it: an agent with any other certificate is refused.",
};
pub const PROBING_ACCEPT_NEW: Variable = Variable {
    name: "PROBING_ACCEPT_NEW",
    read_by: ReadBy::Command,
    doc: "`1` does what `--accept-new` does: trust and remember the certificate of an agent that no earlier command has \
          met. A changed certificate is still refused.",
};
pub const PROBING_DIR: Variable = Variable {
    name: "PROBING_DIR",
    read_by: ReadBy::Both,
    doc: "The private folder for sockets, instead of `/tmp/probing-<uid>` (or, where another user has taken that name, \
          `/tmp/probing-<uid>-1` to `-9` and `/run/user/<uid>/probing`). Created with mode 0700; refused when it \
          belongs to another user or other users can enter it. The command also searches the folder that the target's \
          own `PROBING_DIR` names.",
};
pub const PROBING_CAPTURE_DIR: Variable = Variable {
    name: "PROBING_CAPTURE_DIR",
    read_by: ReadBy::Target,
    doc: "Folder in which stops that timed out, and stops at uncaught exceptions, leave a capture: \
          `PID-stop-N.probe`, at most 100 of one process. Without it they leave rows of `python.captures` and `python.exceptions`.",
};
pub const PROBING_STORE_BYTES: Variable = Variable {
    name: "PROBING_STORE_BYTES",
    read_by: ReadBy::Target,
    doc: "Memory for all rows that the process records, like `256M`, instead of 32 MB or a twentieth of what is free there, \
          whichever is less. Never more than half of what is free. The largest table has half of it.",
};
pub const PROBING_MEMORY: Variable = Variable {
    name: "PROBING_MEMORY",
    read_by: ReadBy::Target,
    doc: "`1` records `python.memory` and `python.heap` from the start of the probe on (`PROBING=1` starts it); `usage` only the former. \
          See docs/memory.md.",
};
pub const PROBING_TORCH: Variable = Variable {
    name: "PROBING_TORCH",
    read_by: ReadBy::Target,
    doc: "Starts the probe as `PROBING=1` does (`PROBING=0` wins), and records what torch does from its import on. Words separated by commas: `1` or `trace`: modules, backward passes \
          and steps (`python.torch_trace`); `tensors`: statistics of parameters and gradients every 100 steps (`python.tensors`); \
          `nan`: the first NaN or Inf (docs/torch.md); `collectives`: collective operations (docs/collectives.md).",
};
pub const PROBING_TARGET: Variable = Variable {
    name: "PROBING_TARGET",
    read_by: ReadBy::Command,
    doc: "The targets when neither `-t` nor a first argument names one; several are separated by commas.",
};
pub const PROBING_PACKAGE: Variable = Variable {
    name: "PROBING_PACKAGE",
    read_by: ReadBy::Command,
    doc: "The folder that contains the Python package `probing`, when the command cannot find it beside itself.",
};
pub const PROBING_COMMAND: Variable = Variable {
    name: "PROBING_COMMAND",
    read_by: ReadBy::Target,
    doc: "The command beside which the agent's program is, when it is not beside the package; set by `probing run`.",
};
pub const RANK: Variable = Variable {
    name: "RANK",
    read_by: ReadBy::Target,
    doc: "The rank that `probing list` shows (set by torchrun).",
};
pub const SLURM_PROCID: Variable = Variable {
    name: "SLURM_PROCID",
    read_by: ReadBy::Target,
    doc: "The rank when `RANK` is not set (set by Slurm).",
};
pub const OMPI_COMM_WORLD_RANK: Variable = Variable {
    name: "OMPI_COMM_WORLD_RANK",
    read_by: ReadBy::Target,
    doc: "The rank when neither `RANK` nor `SLURM_PROCID` is set (set by Open MPI).",
};
pub const LOCAL_RANK: Variable = Variable {
    name: "LOCAL_RANK",
    read_by: ReadBy::Target,
    doc: "With `WORLD_SIZE`, the rank on its node when no launcher gives one for the job (set by Lightning).",
};
pub const NODE_RANK: Variable = Variable {
    name: "NODE_RANK",
    read_by: ReadBy::Target,
    doc: "Which node `LOCAL_RANK` is of; 0 when it is not set.",
};
pub const LOCAL_WORLD_SIZE: Variable = Variable {
    name: "LOCAL_WORLD_SIZE",
    read_by: ReadBy::Target,
    doc: "How many ranks each node has: the rank follows from `NODE_RANK` and `LOCAL_RANK` then.",
};
pub const WORLD_SIZE: Variable = Variable {
    name: "WORLD_SIZE",
    read_by: ReadBy::Target,
    doc: "How many ranks the job has, so that missing ones can be named (set by torchrun).",
};
pub const SLURM_NTASKS: Variable = Variable {
    name: "SLURM_NTASKS",
    read_by: ReadBy::Target,
    doc: "The same when `WORLD_SIZE` is not set (set by Slurm).",
};
pub const OMPI_COMM_WORLD_SIZE: Variable = Variable {
    name: "OMPI_COMM_WORLD_SIZE",
    read_by: ReadBy::Target,
    doc: "The same when neither is set (set by Open MPI).",
};
pub const PYTHONPATH: Variable = Variable {
    name: "PYTHONPATH",
    read_by: ReadBy::Command,
    doc: "Python's own. `probing run` puts its start-up folder in front of it for the program and its children.",
};
pub const PATH: Variable = Variable {
    name: "PATH",
    read_by: ReadBy::Command,
    doc: "The system's own. `probing run` searches it for the script that it starts, whose first line may name a Python \
          with options that keep the probe out.",
};
pub const XDG_STATE_HOME: Variable = Variable {
    name: "XDG_STATE_HOME",
    read_by: ReadBy::Command,
    doc: "Where the prompt keeps its history (`probing/history` in it), instead of `~/.local/state`.",
};
pub const HOME: Variable = Variable {
    name: "HOME",
    read_by: ReadBy::Command,
    doc: "The user's own folder, when `XDG_STATE_HOME` is not set. Without either, histories are not kept.",
};
pub const PROBING_CACHE: Variable = Variable {
    name: "PROBING_CACHE",
    read_by: ReadBy::Development,
    doc: "Where `make` keeps virtual environments, Python 3.14 and torch between runs, instead of `~/.cache/probing-dev`.",
};
pub const PROBING_TEST_PYTHONS: Variable = Variable {
    name: "PROBING_TEST_PYTHONS",
    read_by: ReadBy::Development,
    doc: "The interpreters that tests run targets on, separated by `:`; set by `make test`.",
};

pub const PROBING_TEST_TORCH: Variable = Variable {
    name: "PROBING_TEST_TORCH",
    read_by: ReadBy::Development,
    doc: "The interpreter with torch for tests that need it, and after a `:` an older one; set by `make test` when it is installed.",
};

pub const PROBING_TEST_SCHEMATHESIS: Variable = Variable {
    name: "PROBING_TEST_SCHEMATHESIS",
    read_by: ReadBy::Development,
    doc: "The command that tries an agent's HTTP API as its description says; set by `make test` when it is installed.",
};

pub const PROBING_TEST_REAL: Variable = Variable {
    name: "PROBING_TEST_REAL",
    read_by: ReadBy::Development,
    doc: "The interpreter that has Lightning, Ray and other real software; set by `make real`.",
};

pub const PROBING_TEST_BURSTS: Variable = Variable {
    name: "PROBING_TEST_BURSTS",
    read_by: ReadBy::Development,
    doc: "How many bursts of writes the long test of debug registers makes on each Python, instead of 2000: for runs that are added up.",
};

/// All of them, in the order of the reference.
pub const ALL: &[Variable] = &[
    PROBING,
    PROBING_PORT,
    PROBING_ALLOW,
    PROBING_TOKEN,
    PROBING_TLS,
    PROBING_CA,
    PROBING_FINGERPRINT,
    PROBING_ACCEPT_NEW,
    PROBING_DIR,
    PROBING_CAPTURE_DIR,
    PROBING_STORE_BYTES,
    PROBING_TORCH,
    PROBING_MEMORY,
    PROBING_TARGET,
    PROBING_PACKAGE,
    PROBING_COMMAND,
    RANK,
    SLURM_PROCID,
    OMPI_COMM_WORLD_RANK,
    LOCAL_RANK,
    NODE_RANK,
    LOCAL_WORLD_SIZE,
    WORLD_SIZE,
    SLURM_NTASKS,
    OMPI_COMM_WORLD_SIZE,
    PYTHONPATH,
    PATH,
    XDG_STATE_HOME,
    HOME,
    PROBING_CACHE,
    PROBING_TEST_PYTHONS,
    PROBING_TEST_TORCH,
    PROBING_TEST_SCHEMATHESIS,
    PROBING_TEST_REAL,
    PROBING_TEST_BURSTS,
];

/// Variables that carry a process's rank, the first that is set counts.
const RANKS: [Variable; 3] = [RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK];

impl Variable {
    /// Its value in this process; an empty one counts as unset.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads variables"
    )]
    pub fn value(self) -> Option<OsString> {
        std::env::var_os(self.name).filter(|value| !value.is_empty())
    }

    /// Its value in another process's environment block (`NAME=value` entries that end in NUL).
    pub fn value_in(self, environ: &[u8]) -> Option<OsString> {
        use std::os::unix::ffi::OsStringExt as _;
        environ
            .split(|&byte| byte == 0)
            .find_map(|entry| entry.strip_prefix(self.name.as_bytes())?.strip_prefix(b"="))
            .filter(|value| !value.is_empty())
            .map(|value| OsString::from_vec(value.to_vec()))
    }
}

/// The rank of the process whose variables `value_of` knows.
pub fn rank(value_of: impl Fn(Variable) -> Option<OsString>) -> Option<u32> {
    rank_claim(value_of).map(|(rank, _)| rank)
}

/// The rank, and the place of the variable that says so: 0 counts most.
pub fn rank_claim(value_of: impl Fn(Variable) -> Option<OsString>) -> Option<(u32, usize)> {
    let number = |variable| value_of(variable)?.to_str()?.parse::<u32>().ok();
    let given = RANKS.iter().enumerate();
    let mut given = given.filter_map(|(place, &variable)| Some((number(variable)?, place)));
    given.next().or_else(|| {
        // A process that a launcher numbers on its node only.
        number(WORLD_SIZE)?;
        let local = number(LOCAL_RANK)?;
        let before = match number(NODE_RANK) {
            None | Some(0) => 0,
            Some(node) => node.checked_mul(number(LOCAL_WORLD_SIZE)?)?,
        };
        Some((before.checked_add(local)?, RANKS.len()))
    })
}

/// How many ranks the job has of the process whose variables `value_of` knows: by the launcher that numbered it.
pub fn world_size(value_of: impl Fn(Variable) -> Option<OsString>) -> Option<u32> {
    let sizes = [WORLD_SIZE, SLURM_NTASKS, OMPI_COMM_WORLD_SIZE, WORLD_SIZE];
    let (_, launcher) = rank_claim(&value_of)?;
    value_of(sizes[launcher])?.to_str()?.parse().ok()
}

/// The text of `docs/environment.md`.
pub fn reference() -> String {
    let mut text = String::from(
        "# Environment variables\n\n\
         Made from `crates/probing-proto/src/env.rs` by `make docs`; edit that file, not this one.\n",
    );
    for (heading, read_by) in [
        ("Where the program is started", ReadBy::Target),
        ("For the `probing` command", ReadBy::Command),
        ("For both", ReadBy::Both),
        ("For working on Probing itself", ReadBy::Development),
    ] {
        text.push_str(&format!(
            "\n## {heading}\n\n| variable | meaning |\n|---|---|\n"
        ));
        for variable in ALL.iter().filter(|variable| variable.read_by == read_by) {
            text.push_str(&format!("| `{}` | {} |\n", variable.name, variable.doc));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank_of(environ: &[u8]) -> Option<u32> {
        rank(|variable| variable.value_in(environ))
    }

    #[test]
    fn a_rank_comes_from_the_first_launcher_that_set_one() {
        assert_eq!(rank_of(b"HOME=/h\0RANK=3\0"), Some(3));
        assert_eq!(
            rank_of(b"OMPI_COMM_WORLD_RANK=2\0SLURM_PROCID=1\0"),
            Some(1)
        );
        assert_eq!(rank_of(b"RANK=\0SLURM_PROCID=7\0"), Some(7));
        assert_eq!(rank_of(b"LOCAL_RANK=4\0XRANK=5\0"), None);
        let on_a_node =
            |more: &str| rank_of(format!("LOCAL_RANK=4\0WORLD_SIZE=16\0{more}").as_bytes());
        assert_eq!(on_a_node(""), Some(4));
        assert_eq!(on_a_node("NODE_RANK=0\0"), Some(4));
        assert_eq!(on_a_node("NODE_RANK=1\0LOCAL_WORLD_SIZE=8\0"), Some(12));
        assert_eq!(on_a_node("NODE_RANK=1\0"), None);
        assert_eq!(on_a_node("RANK=3\0"), Some(3));
        assert_eq!(rank_of(b"RANK=first\0"), None);
        assert_eq!(rank_of(b""), None);
    }

    #[test]
    fn the_size_of_a_job_is_told_by_who_numbered_its_ranks() {
        let size_of = |environ: &[u8]| world_size(|variable| variable.value_in(environ));
        assert_eq!(size_of(b"RANK=3\0WORLD_SIZE=8\0"), Some(8));
        assert_eq!(
            size_of(b"RANK=3\0SLURM_PROCID=0\0SLURM_NTASKS=1\0WORLD_SIZE=8\0"),
            Some(8)
        );
        assert_eq!(size_of(b"LOCAL_RANK=3\0WORLD_SIZE=8\0"), Some(8));
        assert_eq!(size_of(b"RANK=3\0SLURM_NTASKS=1\0"), None);
        assert_eq!(size_of(b"WORLD_SIZE=8\0"), None);
    }
}
