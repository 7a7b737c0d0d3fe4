//! Targets on other machines, through the agent of their node: one port, which wants a token and proves who it is.
//!
//! An `endpoint` is where it listens; `keys` are what opens it, `known` what it looked like when it was first met; a `way` is
//! how it is reached, and who must be at its end; `stream` (or `ssh`) and `http` carry one request, `relay` a conversation
//! with a probe; a `node` is all that with types.

mod endpoint;
mod fallen;
mod http;
mod keys;
mod known;
mod local;
mod node;
mod owner;
mod pinned;
mod proof;
mod relay;
mod samples;
mod ssh;
mod stream;
mod way;

pub use endpoint::{Endpoint, NotAnEndpoint};
pub use fallen::{Fallen, fallen_agents, wanted_agents};
pub use keys::{FirstContact, Keys};
pub use local::{Standing, agents_here};
pub use node::{Node, Rows};
pub use pinned::{Fingerprint, NotAFingerprint};
pub use proof::{ChannelBinding, token_key, token_proof};
pub(crate) use samples::sample;
