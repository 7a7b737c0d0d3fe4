//! What opens the agents that a command names.

use std::fmt;
use std::path::PathBuf;

use crate::agent::cert_pinning::Fingerprint;

/// As the user gave them, for all agents of a command.
#[derive(Clone, Default)]
pub struct Keys {
    /// The secret that lets in. Without one, only an agent of the same user on this machine does.
    pub token: Option<String>,
    /// What the agent's certificate must be, whatever is remembered of it.
    pub fingerprint: Option<Fingerprint>,
    /// Certificates of the authorities that agents are trusted by. With them, only a named fingerprint counts also.
    pub ca: Option<PathBuf>,
    /// What to do about an agent that no earlier command has met.
    pub first_contact: FirstContact,
    /// Hears at once what is to be said about how an agent was reached, whatever becomes of the request.
    pub on_note: Option<fn(&str)>,
    /// Whether plain text is good enough on a loopback address whose agent is not ours.
    pub plain: bool,
}

/// What to do about an agent whose certificate nothing is known of. The token has not left this process by then.
#[derive(Debug, Clone, Copy, Default)]
pub enum FirstContact {
    /// Refuse it, and show its certificate.
    #[default]
    Refuse,
    /// Trust its certificate, and remember it.
    Accept,
    /// Ask the user, who sees its name and its certificate.
    Ask(fn(&str, Fingerprint) -> bool),
}

/// Secrets are not for logs.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("fingerprint", &self.fingerprint)
            .field("ca", &self.ca)
            .field("first_contact", &self.first_contact)
            .field("plain", &self.plain)
            .finish_non_exhaustive()
    }
}
