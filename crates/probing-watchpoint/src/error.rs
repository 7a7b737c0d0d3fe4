//! Errors of watching bytes, with their hints.

use std::io;

use probing_process::procfs::threads::Tid;
use probing_proto::process::Pid;

#[derive(Debug, thiserror::Error)]
pub enum WatchpointError {
    #[error("process has ended: {pid}")]
    Ended { pid: Pid },
    #[error("not permitted to set debug registers in process: {pid}")]
    NotPermitted {
        pid: Pid,
        #[source]
        source: io::Error,
    },
    #[error("no debug register is left in process: {pid}")]
    NoneLeft { pid: Pid },
    #[error("this machine does not allow debug registers")]
    Unsupported {
        #[source]
        source: io::Error,
    },
    /// From Linux 5.13 on they need not.
    #[error(
        "debug registers are not safe on this kernel: children of the process would inherit them"
    )]
    Inherited,
    #[error("too many threads: bytes can be watched in a process of {most} here")]
    TooMany { most: usize },
    #[error("too few open files are allowed to watch all threads of process: {pid}")]
    TooFewFiles { pid: Pid },
    #[error("no memory for the kernel's records of writes")]
    NoRing(#[source] io::Error),
    #[error("the kernel does not watch")]
    Failed(#[source] io::Error),
    /// What became of a process of our own.
    #[error("debug registers are not safe on this machine: a test process {fate}")]
    Unproven { fate: String },
    /// The handler that drops stray traps is no longer that of the process.
    #[error("the program has removed the SIGTRAP handler of the probe; no longer watched: {pid}")]
    Unguarded { pid: Pid },
    #[error("debug registers are not safe here: every thread blocks SIGTRAP: {pid}")]
    AllBlocked { pid: Pid },
    /// The kernel would end the process at a stray trap in this thread, whatever handler there is.
    #[error("a thread that blocks SIGTRAP ({name}, {tid}) has started; no longer watched: {pid}")]
    Blocked { pid: Pid, tid: Tid, name: String },
}

impl WatchpointError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotPermitted { .. } => {
                "the kernel asks for kernel.perf_event_paranoid of 2 or less, or for root; a container needs \
                 CAP_PERFMON and a seccomp profile that allows perf_event_open (see docs/permissions.md)"
            }
            Self::NoneLeft { .. } => {
                "a processor has four, and a debugger or another `probing watch` uses them: end one of those"
            }
            Self::Unsupported { .. } => {
                "virtual machines may hide them; watch the variable by name instead"
            }
            Self::TooFewFiles { .. } => "raise the limit: ulimit -n 65536",
            Self::NoRing(_) => {
                "kernel.perf_event_mlock_kb limits it for users other than root: end other `perf` and `probing watch`"
            }
            Self::Unproven { .. } => {
                "the kernel or the hypervisor loses debug exceptions, and a target might end as the test process did; \
                 watch the variable by name, or accept the risk: --unsafe-debug-registers"
            }
            Self::AllBlocked { .. } => {
                "a stray debug exception would end the program; watch the variable by name, or accept the risk: \
                 --unsafe-debug-registers"
            }
            Self::Inherited => {
                "a stray debug exception could end a child; watch the variable by name, or accept the risk: \
                 --unsafe-debug-registers"
            }
            Self::Unguarded { .. } | Self::Blocked { .. } => {
                "a stray debug exception could end the program; watch again, or accept the risk: --unsafe-debug-registers"
            }
            Self::TooMany { .. } | Self::Ended { .. } | Self::Failed(_) => return None,
        };
        Some(hint.to_owned())
    }
}
