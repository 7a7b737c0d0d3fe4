//! Finds Python processes, and talks to the probes in them.
//!
//! Every wait has a deadline: a target that is stopped, hung or gone is an answer, too.

mod agent;
mod archive;
mod error;
mod labels;
mod parallel;
mod probe;
mod sampling;
mod stacks;
mod storage;
mod targets;
mod watchpoints;

pub use self::agent::{
    ChannelBinding, Endpoint, Fingerprint, FirstContact, Keys, LocalAgent, MissingAgent, Node,
    NotAFingerprint, NotAnEndpoint, RowStream, local_agents, missing_agents, token_key,
    token_proof, wanted_agents,
};
pub use self::error::{AgentError, ClientError, FileError, LocalError, SelectionError};
pub use self::labels::ranks::{RankSelector, Ranks};
pub use self::labels::target_label::{Group, TargetLabel};
pub use self::parallel::fan_out::{FanOutLimits, fan_out};
pub use self::parallel::thread_pool::run as on_a_kept_thread;
pub use self::probe::disconnect::DisconnectWatcher;
pub use self::probe::package::package_dir;
pub use self::probe::{Canceller, Entry, EvalEnd, EvalEvent, Probe};
pub use self::sampling::call_tree::{Calls, FrameLocation};
pub use self::sampling::samples::{Plan, Samples, SamplesEnd};
pub use self::sampling::ticker::{Pace, Stop};
pub use self::stacks::merged_tree::{Branch, BranchEnd, LeafState, Merge, Tree};
pub use self::stacks::{LocalValues, StackQuery};
pub use self::storage::cleanup::{Limits, beyond, remove};
pub use self::storage::recording::Recording;
pub use self::targets::list::list;
pub use self::targets::offered::{anyone_probed, is_offered, offered, roll};
pub use self::targets::proc_info::{ProcessFacts, ThreadFacts, host_name, started_at_nanos};
pub use self::targets::samples::sample_each;
pub use self::targets::session::Contact;
pub use self::targets::set::{EndedTarget, Member, Members, TargetSelectors, TargetSet};
pub use self::targets::stacks::Stacks;
pub use self::targets::target::{ConnectedProbe, Remote, Target};
pub use self::watchpoints::writes::{MemoryWatch, WatchedMemory};
pub use probing_watchpoint::StrayTraps;

pub use probing_attach::{Options as AttachOptions, Report as AttachReport};
pub use probing_process::procfs::usage::Usage;
pub use probing_stacks::Pause;
