//! Targets on other machines, through the agent of their node.
//!
//! An `endpoint` is where it listens; `keys` are what opens it, `known` what it looked like when it was first met; a `way` is
//! how it is reached, and who must be at its end; `stream` (or `ssh`) and `http` carry one request, `relay` a conversation
//! with a probe; a `node` is all that with types.

mod cert_pinning;
mod connection_owner;
mod endpoint;
mod http;
mod keys;
mod known_agents;
mod local;
mod node;
mod proof;
mod relay;
mod restart;
mod route;
mod samples;
mod ssh;
mod stream;

pub use self::cert_pinning::{Fingerprint, NotAFingerprint};
pub use self::endpoint::{Endpoint, NotAnEndpoint};
pub use self::keys::{FirstContact, Keys};
pub use self::local::{LocalAgent, local_agents};
pub use self::node::{Node, RowStream};
pub use self::proof::{ChannelBinding, token_key, token_proof};
pub use self::restart::{MissingAgent, missing_agents, wanted_agents};
pub(crate) use self::samples::sample;
