//! One port per node: the targets of this machine for commands on others, and for `curl`.
//!
//! Who may come in: `door` (address ranges, failures), `certificate` (TLS), `tokens` (who, and as what), `origin` (no
//! web page). How it is asked: `listener` (who connects), `connection` (as hyper has it), `request` (what it must be),
//! `routes` (what there is), `refusal` (what is not), `json` (how it is written), `openapi` (the same for machines). What is answered: `answers/`, each a file, for the targets of a `choice`. What stays: `folder` (the
//! agent's files), `audit` (who did what), `life` (when it ends).
//!
//! axum and hyper read requests and write answers. All that is done for one waits for processes, on a thread of which
//! there are so many at most; what waits for one must not keep others from theirs.
//!
//! *Invariant:* nothing is done for who shows no token, but for saying that somebody is here.
//! *Invariant:* every read, and every wait for a target, has a bound and a deadline.

mod agent;
mod agent_dir;
mod error;
mod handlers;
mod http;
mod security;
mod settings;
mod target_selection;

pub use self::agent::{Agent, ExitReason, say_trouble};
pub use self::error::AgentError;
pub use self::settings::{NotSettings, Settings, TlsMode};
