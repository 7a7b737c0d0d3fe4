//! Errors at the start of an agent, with their hints.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use probing_proto::agent::MIN_TOKEN;
use probing_proto::process::Pid;
use probing_store::FolderError;

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("cannot use {path}: {source}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("other users can read the secret in {path} (mode {mode:03o})")]
    OpenSecret { path: PathBuf, mode: u32 },
    #[error("no token in {path}")]
    NoTokens { path: PathBuf },
    #[error("a token has at least {MIN_TOKEN} characters, and the one {place} has {length}")]
    ShortToken { place: String, length: usize },
    #[error("without TLS the agent listens on loopback addresses only, not on {listen}")]
    PlainForAll { listen: SocketAddr },
    #[error("cannot use the certificate in {path}: {why}")]
    Certificate { path: PathBuf, why: String },
    /// Somebody else does what was asked for.
    #[error("an agent of this user is on port {port} already{}", pid.map(|pid| format!(": process {pid}")).unwrap_or_default())]
    Runs { port: u16, pid: Option<Pid> },
    #[error("cannot serve: {source}")]
    NotServing {
        #[source]
        source: io::Error,
    },
    #[error("cannot listen on {listen}: {source}")]
    NotBound {
        listen: SocketAddr,
        #[source]
        source: io::Error,
    },
}

impl AgentError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Folder(error) => error.hint(),
            Self::OpenSecret { path, .. } => format!("run: chmod 600 {}", path.display()),
            Self::NoTokens { .. } => {
                "write one token per line: `control TOKEN` or `observe TOKEN`".to_owned()
            }
            Self::ShortToken { .. } => {
                "PROBING_TOKEN=$(openssl rand -hex 32) makes one that cannot be guessed".to_owned()
            }
            Self::PlainForAll { .. } => {
                "omit --tls: the agent creates a certificate, and clients remember it".to_owned()
            }
            Self::Certificate { .. } => {
                "name PEM files: --tls CERTIFICATE,KEY; or omit --tls".to_owned()
            }
            Self::Runs { .. } => {
                "that agent serves all processes of this user; `probing list` shows them".to_owned()
            }
            Self::NotBound { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                "another program listens there: choose another port".to_owned()
            }
            Self::NotServing { .. } | Self::NotBound { .. } | Self::File { .. } => return None,
        };
        Some(hint)
    }
}
