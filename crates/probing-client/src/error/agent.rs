//! Errors of agents: reaching one, trusting it, and what it refuses.

use std::io;
use std::path::PathBuf;

use probing_proto::agent::{Refusal, RefusalKind};

/// Why an agent cannot be reached or asked.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// It is on a machine where we are not, and this cannot be asked of its agent.
    #[error("only its own machine can tell: {target}")]
    Elsewhere { target: String },
    #[error("bytes of memory are watched on the machine of their process: {target}")]
    WatchedThere { target: String },
    /// What an agent did instead of saying who is there.
    #[error("{why}")]
    Unlisted { why: String },
    #[error("cannot reach an agent at {endpoint}")]
    Unreachable {
        endpoint: String,
        #[source]
        source: io::Error,
    },
    #[error("the connection to the agent at {endpoint} broke")]
    Gone {
        endpoint: String,
        #[source]
        source: io::Error,
    },
    #[error("no agent answers at {endpoint}: {what}")]
    NotAnAgent { endpoint: String, what: String },
    #[error("no token for the agent at {endpoint}")]
    NoToken { endpoint: String },
    #[error("the agent at {endpoint} refuses this address")]
    AddressRefused { endpoint: String },
    #[error("the listener at {endpoint} does not speak TLS")]
    NotTls { endpoint: String },
    #[error("the agent at {endpoint} shows another certificate than expected: {seen}")]
    OtherCertificate {
        endpoint: String,
        seen: String,
        expected: String,
        /// The file that remembers the other.
        remembered: Option<PathBuf>,
    },
    /// No earlier command has met it, and nobody says that it can be trusted. The token was not used.
    #[error(
        "certificate not trusted: first contact with the agent at {endpoint}, which shows {seen}"
    )]
    FirstContact { endpoint: String, seen: String },
    /// Someone else listens on a loopback address, and would read the token.
    #[error("plain text refused: the listener at {endpoint} {}", listener_of(*uid))]
    ForeignListener { endpoint: String, uid: Option<u32> },
    #[error("no agent could be started over {endpoint}: {source}")]
    NotOverSsh {
        endpoint: String,
        #[source]
        source: io::Error,
    },
    #[error("certificate not trusted: the agent at {endpoint}: {why}")]
    NotSigned {
        endpoint: String,
        why: String,
        ca: PathBuf,
    },
    #[error("cannot use the certificates in {}: {why}", ca.display())]
    NoCa { ca: PathBuf, why: String },
    /// The agent was reached, and refused or failed.
    #[error("{}", .refusal.failure.error)]
    Refused {
        endpoint: String,
        status: u16,
        refusal: Refusal,
    },
}

impl AgentError {
    /// Whether the agent refused for this reason.
    pub fn has_kind(&self, kind: RefusalKind) -> bool {
        matches!(self, Self::Refused { refusal, .. } if refusal.kind == Some(kind))
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Elsewhere { .. } => "name the targets of one node at a time: -t HOST:PORT",
            Self::WatchedThere { .. } => "run `probing watch` there, for instance over ssh",
            Self::Unreachable { .. } | Self::Unlisted { .. } => {
                "start it there with `probing agent --listen`, or the program with PROBING_PORT; check that the port is open"
            }
            Self::NotAnAgent { .. } => {
                "check that the port is that of `probing agent`, of this version"
            }
            Self::NotOverSsh { .. } => {
                "SSH must let you in, and `probing` must be on the PATH there: try `ssh USER@HOST probing --version`"
            }
            Self::Refused { refusal, .. } => return refusal.failure.hint.clone(),
            Self::Gone { .. } => return None,
            _ => return self.trust_hint(),
        };
        Some(hint.to_owned())
    }

    /// What to do when an agent and a command do not trust each other.
    fn trust_hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoToken { .. } => {
                "set PROBING_TOKEN; the agent wrote it to the file that it printed, agents/token in its private folder"
            }
            Self::AddressRefused { .. } => {
                "the agent was started with --allow or PROBING_ALLOW, and this address is in none of those ranges"
            }
            Self::NotTls { .. } => {
                "an agent on a loopback address speaks plain text: with PROBING_TLS=off so does this command, to such an address only"
            }
            Self::ForeignListener { .. } => {
                "PROBING_TLS=off is for listeners of this user or of root; start the agent with --tls CERT,KEY to be sure of it"
            }
            Self::NoCa { .. } => "name a PEM file with one certificate or more: --ca FILE",
            Self::FirstContact { seen, .. } => {
                return Some(format!(
                    "compare it with the agent's output, then add --fingerprint {seen}; or trust it unseen with \
                     --accept-new, or agents whose certificates an authority signed with --ca FILE"
                ));
            }
            Self::NotSigned { ca, .. } => {
                return Some(format!(
                    "none of those in {} has signed its certificate for this name; without --ca and PROBING_CA a \
                     certificate is remembered on first contact",
                    ca.display()
                ));
            }
            Self::OtherCertificate {
                expected,
                remembered,
                ..
            } => {
                let expected = format!("expected {expected}: someone may be in between");
                return Some(match remembered {
                    Some(file) => format!(
                        "{expected}. If the agent has a new certificate, remove its line from {}, or name it with --fingerprint",
                        file.display()
                    ),
                    None => expected,
                });
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

fn listener_of(uid: Option<u32>) -> String {
    match uid {
        Some(uid) => format!("belongs to uid {uid}"),
        None => "does not accept connections".to_owned(),
    }
}
