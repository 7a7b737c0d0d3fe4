//! What opens the agents that a command names.

use std::fmt;
use std::path::PathBuf;

use super::pinned::Fingerprint;

/// As the user gave them, for all agents of a command.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// The secret that lets in. Without one, an agent of the same user on this machine lets us have its own.
    pub token: Option<String>,
    /// What the agent's certificate must be, whatever is remembered of it.
    pub fingerprint: Option<Fingerprint>,
    /// The certificates of those who vouch for agents. With them, nothing else counts but a fingerprint that was named.
    pub ca: Option<PathBuf>,
    /// Whether plain text is good enough on a loopback address whose agent is not ours.
    pub plain: bool,
}

/// Secrets are not for logs.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("fingerprint", &self.fingerprint)
            .field("ca", &self.ca)
            .field("plain", &self.plain)
            .finish()
    }
}
