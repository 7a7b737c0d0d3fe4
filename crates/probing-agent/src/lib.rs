//! One port per node: the targets of this machine for commands on others, and for `curl`.
//!
//! Who may come in: `door` (address ranges, failures), `certificate` (TLS), `tokens` (who, and as what), `origin` (no
//! web page). How it is asked: `listener` (connections), `http` (requests), `routes` (what there is), `openapi` (the same
//! for machines). What is answered: `answers/`, each a file, for the targets of a `choice`. What stays: `folder` (the
//! agent's files), `audit` (who did what), `life` (when it ends).
//!
//! A thread per connection, of which there are so many at most: all that is done here waits for processes, and what
//! waits for one must not keep others from theirs.
//!
//! *Invariant:* nothing is done for who shows no token, but for saying that somebody is here.
//! *Invariant:* every read, and every wait for a target, has a bound and a deadline.

mod answers;
mod audit;
mod certificate;
mod choice;
mod door;
mod error;
mod folder;
mod http;
mod life;
mod listener;
mod openapi;
mod origin;
mod routes;
mod settings;
mod tokens;

pub use error::AgentError;
pub use life::{Agent, Ended, say_trouble};
pub use settings::{NotSettings, Settings, TlsChoice};
