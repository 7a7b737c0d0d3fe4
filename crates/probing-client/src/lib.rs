//! Finds the processes that can be looked at, and talks to the probes in them.
//!
//! Every wait has a deadline: a target that is stopped, hung or gone is an answer, too.

mod access;
mod agent;
mod ask;
mod attach;
mod calls;
mod candidate;
mod connection;
mod contact;
mod core_file;
mod debug_registers;
mod error;
mod excerpts;
mod facts;
mod hang_up;
mod idle;
mod inside;
mod kept;
mod list;
mod locals;
mod meeting;
mod names;
mod pace;
mod package;
mod private;
mod probe;
mod ranks;
mod recording;
mod roll;
mod samples;
mod set;
mod source_text;
mod stacks;
mod stops;
mod sweep;
mod target;
mod tasks;
mod torch;
mod trace;
mod tracers;
mod tree;
mod who;
mod writes;

pub use agent::{
    ChannelBinding, Endpoint, Fallen, Fingerprint, FirstContact, Keys, Node, NotAFingerprint,
    NotAnEndpoint, Rows, Standing, agents_here, fallen_agents, token_key, token_proof,
    wanted_agents,
};
pub use ask::{Manner, ask_each};
pub use calls::{Calls, Place};
pub use contact::Contact;
pub use core_file::Left;
pub use error::ClientError;
pub use facts::{ProcessFacts, ThreadFacts, host_name, started_at_nanos};
pub use hang_up::HangUp;
pub use idle::run as on_a_kept_thread;
pub use list::list;
pub use pace::{Pace, Stop};
pub use package::package_dir;
pub use probe::{Canceller, EvalEnd, News, Probe};
pub use probing_watchpoint::StrayTraps;
pub use ranks::{RankChoice, Ranks};
pub use recording::Recording;
pub use roll::{anyone_probed, is_offered, offered, roll};
pub use samples::{Plan, Samples, SamplesEnd, sample_each};
pub use set::{Choices, Ended, Member, Members, TargetSet};
pub use stacks::{StackQuery, Stacks};
pub use sweep::{Limits, beyond, remove};
pub use target::{Entry, Reached, Remote, Target};
pub use tree::{Branch, End, Merge, Then, Tree};
pub use who::{Group, Who};
pub use writes::{Watched, Writes};

pub use probing_attach::{Options as AttachOptions, Report as AttachReport};
pub use probing_process::usage::Usage;
pub use probing_stacks::Pause;
