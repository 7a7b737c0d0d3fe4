//! Targets on other machines, through the agent of their node: one port, which wants a token and proves who it is.
//!
//! An `endpoint` is where it listens; `keys` are what opens it, `known` what it looked like when it was first met;
//! `stream` (or `ssh`) and `http` carry one request, `relay` a conversation with a probe; a `node` is all that with types.

mod endpoint;
mod fallen;
mod http;
mod keys;
mod known;
mod local;
mod node;
mod pinned;
mod relay;
mod samples;
mod ssh;
mod stream;

pub use endpoint::{Endpoint, NotAnEndpoint};
pub use fallen::{Fallen, fallen_agents, wanted_agents};
pub use keys::Keys;
pub use local::{Standing, agents_here};
pub use node::{Node, Rows};
pub use pinned::{Fingerprint, NotAFingerprint};
pub(crate) use samples::sample;
