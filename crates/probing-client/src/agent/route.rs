//! The way to an agent: its own socket on this machine, or TLS to a certificate that is trusted.
//!
//! A token is used only on a way whose end has proven who it is. The types hold that: without something to trust there is
//! no [`Way::Tls`], plain text is for a listener whose owner the kernel names, and a local agent is asked without a token.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::agent::cert_pinning::{Fingerprint, OtherCertificate, Pinned};
use crate::agent::endpoint::{self, Endpoint};
use crate::agent::keys::{FirstContact, Keys};
use crate::agent::local::{self, LocalAgent};
use crate::agent::proof::{ChannelBinding, proof_digits};
use crate::agent::stream::{Stream, Timed};
use crate::agent::{connection_owner, known_agents};
use crate::error::{AgentError, ClientError};

/// For each address of a host to take a connection.
const CONNECT: Duration = Duration::from_secs(4);
/// For a first handshake, which only shows the certificate.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How an agent is reached.
#[derive(Debug)]
pub(crate) enum Route {
    /// An agent of this user on this machine, over its Unix socket.
    Local(LocalAgent),
    /// A loopback address, in plain text, because the user said so.
    Plain {
        addresses: Vec<SocketAddr>,
        token: String,
    },
    Tls {
        addresses: Vec<SocketAddr>,
        token: String,
        trust: Trust,
    },
}

/// What a certificate must be.
#[derive(Debug, Clone)]
pub(crate) enum Trust {
    /// This one.
    Pinned {
        fingerprint: Fingerprint,
        /// Whether it is what an earlier command remembered.
        remembered: bool,
    },
    /// Signed by one of these, for the name of the agent.
    Authorities(Arc<RootCertStore>),
}

/// A connection on which a request can be sent, and what the request says of who asks.
pub(crate) struct Opened {
    pub(crate) stream: Stream,
    /// The value of `Host`.
    pub(crate) host: String,
    /// The value of `Authorization`.
    pub(crate) authorization: Option<String>,
}

/// A way that was found, and what is to be said about it.
pub(crate) struct ResolvedRoute {
    pub(crate) way: Route,
    pub(crate) note: Option<String>,
}

impl Route {
    /// The way to the agent at this host and port. An agent that nobody has met is asked for its certificate, and for
    /// nothing else, until the user trusts it.
    pub(crate) fn find(
        endpoint: &Endpoint,
        (host, port): (&str, u16),
        keys: &Keys,
    ) -> Result<ResolvedRoute, ClientError> {
        let found = |way| Ok(ResolvedRoute { way, note: None });
        let addresses = endpoint::addresses(host, port);
        let addresses = addresses.map_err(|source| unreachable(endpoint, source))?;
        if let Some(standing) = local::listening(&addresses, port) {
            return found(Self::Local(standing));
        }
        let Some(token) = keys.token.clone() else {
            let endpoint = endpoint.to_string();
            return Err(ClientError::Agent(AgentError::NoToken { endpoint }));
        };
        let is_loopback =
            !addresses.is_empty() && addresses.iter().all(|address| address.ip().is_loopback());
        if keys.plain && is_loopback {
            return found(Self::Plain { addresses, token });
        }
        let (trust, note) = match (keys.fingerprint, &keys.ca) {
            (Some(fingerprint), _) => (pinned(fingerprint, false), None),
            (None, Some(ca)) => (Trust::Authorities(Arc::new(roots(ca)?)), None),
            (None, None) => {
                if let Some(fingerprint) = known_agents::fingerprint(endpoint) {
                    (pinned(fingerprint, true), None)
                } else {
                    let tcp = dial(endpoint, &addresses)?.0;
                    let seen = shown(endpoint, host, tcp)?;
                    let note = accepted(endpoint, seen, keys.first_contact)?;
                    (pinned(seen, true), Some(note))
                }
            }
        };
        let way = Self::Tls {
            addresses,
            token,
            trust,
        };
        Ok(ResolvedRoute { way, note })
    }

    /// A connection whose end is who is expected.
    pub(crate) fn open(
        &self,
        endpoint: &Endpoint,
        keys: &Keys,
        deadline: Instant,
    ) -> Result<Opened, ClientError> {
        let broken = |source| broken(endpoint, source);
        let timed = |opened: io::Result<Timed>| -> Result<Timed, ClientError> {
            let mut timed = opened.map_err(broken)?;
            timed.set_deadline(Some(deadline)).map_err(broken)?;
            Ok(timed)
        };
        let bearer = |token: &String| format!("Bearer {token}");
        match self {
            Self::Local(standing) => {
                let socket = local::dial(standing, endpoint, CONNECT)?;
                Ok(Opened {
                    stream: Box::new(timed(Ok(Timed::over_unix(socket)))?),
                    host: "localhost".to_owned(),
                    // Only one that the user chose: without it, the user itself is let in.
                    authorization: keys.token.as_ref().map(bearer),
                })
            }
            Self::Plain { addresses, token } => {
                let (tcp, address) = dial(endpoint, addresses)?;
                check_owner(endpoint, &tcp)?;
                Ok(Opened {
                    stream: Box::new(timed(Timed::over_tcp(tcp))?),
                    host: address.to_string(),
                    authorization: Some(bearer(token)),
                })
            }
            Self::Tls {
                addresses,
                token,
                trust,
            } => {
                let (tcp, address) = dial(endpoint, addresses)?;
                let tcp = timed(Timed::over_tcp(tcp))?;
                let stream =
                    within_tls(endpoint, trust, tcp, &keys.ca.clone().unwrap_or_default())?;
                let binding = ChannelBinding::of(&stream.conn)
                    .map_err(|error| strange(endpoint, &error.to_string()))?;
                let proof = proof_digits(token, &binding);
                let scheme = probing_proto::agent::PROOF_SCHEME;
                Ok(Opened {
                    stream: Box::new(stream),
                    host: address.to_string(),
                    authorization: Some(format!("{scheme} {proof}")),
                })
            }
        }
    }
}

fn pinned(fingerprint: Fingerprint, remembered: bool) -> Trust {
    Trust::Pinned {
        fingerprint,
        remembered,
    }
}

fn dial(
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
) -> Result<(TcpStream, SocketAddr), ClientError> {
    let mut last = io::Error::from(ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect_timeout(address, CONNECT) {
            Ok(tcp) => return Ok((tcp, *address)),
            Err(error) => last = error,
        }
    }
    Err(unreachable(endpoint, last))
}

/// Plain text is for ourselves and for root: anybody may listen on a port of this machine.
fn check_owner(endpoint: &Endpoint, tcp: &TcpStream) -> Result<(), ClientError> {
    let own = rustix::process::geteuid().as_raw();
    let uid = connection_owner::accepted_by(tcp).map_err(|source| broken(endpoint, source))?;
    if uid.is_some_and(|uid| uid == own || uid == 0) {
        return Ok(());
    }
    let endpoint = endpoint.to_string();
    Err(ClientError::Agent(AgentError::ForeignListener {
        endpoint,
        uid,
    }))
}

/// The certificate of whoever listens there and has its key. Nothing is sent but a handshake.
fn shown(endpoint: &Endpoint, host: &str, tcp: TcpStream) -> Result<Fingerprint, ClientError> {
    let mut tcp = Timed::over_tcp(tcp).map_err(|source| broken(endpoint, source))?;
    let deadline = Some(Instant::now() + HANDSHAKE);
    tcp.set_deadline(deadline)
        .map_err(|source| broken(endpoint, source))?;
    let verifier = Pinned::new(None);
    let config = ClientConfig::builder_with_provider(verifier.provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| strange(endpoint, &error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as _)
        .with_no_client_auth();
    handshake(host, config, &mut tcp)
        .map_err(|error| error.explained(endpoint, None, Path::new("")))?;
    let seen = verifier.seen();
    seen.ok_or_else(|| strange(endpoint, "it has no certificate"))
}

/// What is to be said about a certificate that is trusted from now on.
fn accepted(
    endpoint: &Endpoint,
    seen: Fingerprint,
    first_contact: FirstContact,
) -> Result<String, ClientError> {
    let is_trusted = match first_contact {
        FirstContact::Refuse => false,
        FirstContact::Accept => true,
        FirstContact::Ask(ask) => ask(&endpoint.to_string(), seen),
    };
    if !is_trusted {
        return Err(ClientError::Agent(AgentError::FirstContact {
            endpoint: endpoint.to_string(),
            seen: seen.to_string(),
        }));
    }
    let place = match known_agents::remember(endpoint, seen) {
        Ok(Some(path)) => format!("remembered in {}", path.display()),
        Ok(None) => "not remembered: there is no home folder".to_owned(),
        Err(error) => format!("not remembered: {error}"),
    };
    Ok(format!(
        "note: first contact with the agent at {endpoint}, whose certificate is {seen} ({place}); \
         compare it with the agent's output"
    ))
}

/// A connection within TLS, at the end of which is who is trusted.
fn within_tls(
    endpoint: &Endpoint,
    trust: &Trust,
    mut tcp: Timed,
    ca: &Path,
) -> Result<StreamOwned<ClientConnection, Timed>, ClientError> {
    let expected = match trust {
        Trust::Pinned { fingerprint, .. } => Some(*fingerprint),
        Trust::Authorities(_) => None,
    };
    let verifier = Pinned::new(expected);
    let config = ClientConfig::builder_with_provider(verifier.provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| strange(endpoint, &error.to_string()))?;
    let config = match trust {
        Trust::Authorities(roots) => config.with_root_certificates(Arc::clone(roots)),
        Trust::Pinned { .. } => config
            .dangerous()
            .with_custom_certificate_verifier(verifier),
    };
    let Endpoint::Port { host, .. } = endpoint else {
        return Err(strange(endpoint, "it has no port"));
    };
    let connection = handshake(host, config.with_no_client_auth(), &mut tcp)
        .map_err(|error| error.explained(endpoint, Some(trust), ca))?;
    Ok(StreamOwned::new(connection, tcp))
}

/// Why a handshake did not come to its end.
enum NotProven {
    Io(io::Error),
    Strange(String),
}

fn handshake(
    host: &str,
    config: ClientConfig,
    tcp: &mut Timed,
) -> Result<ClientConnection, NotProven> {
    let Ok(name) = ServerName::try_from(host.to_owned()) else {
        return Err(NotProven::Strange(
            "TLS does not accept its name".to_owned(),
        ));
    };
    let mut connection = ClientConnection::new(Arc::new(config), name)
        .map_err(|error| NotProven::Strange(error.to_string()))?;
    while connection.is_handshaking() {
        connection.complete_io(tcp).map_err(NotProven::Io)?;
    }
    Ok(connection)
}

impl NotProven {
    fn explained(self, endpoint: &Endpoint, trust: Option<&Trust>, ca: &Path) -> ClientError {
        let error = match self {
            Self::Strange(what) => return strange(endpoint, &what),
            Self::Io(error) => error,
        };
        let name = endpoint.to_string();
        let tls = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::Other(other)) => match (other.0.downcast_ref(), trust) {
                (
                    Some(OtherCertificate(seen)),
                    Some(Trust::Pinned {
                        fingerprint,
                        remembered,
                    }),
                ) => ClientError::Agent(AgentError::OtherCertificate {
                    endpoint: name,
                    seen: seen.to_string(),
                    expected: fingerprint.to_string(),
                    remembered: remembered.then(known_agents::path).flatten(),
                }),
                _ => ClientError::Agent(AgentError::NotTls { endpoint: name }),
            },
            Some(rustls::Error::InvalidMessage(_)) => {
                ClientError::Agent(AgentError::NotTls { endpoint: name })
            }
            Some(rustls::Error::InvalidCertificate(why)) => {
                ClientError::Agent(AgentError::NotSigned {
                    endpoint: name,
                    why: why.to_string(),
                    ca: ca.to_owned(),
                })
            }
            Some(rustls::Error::AlertReceived(AlertDescription::AccessDenied)) => {
                ClientError::Agent(AgentError::AddressRefused { endpoint: name })
            }
            Some(other) => strange(endpoint, &other.to_string()),
            None => broken(endpoint, error),
        }
    }
}

/// The authorities that agents are trusted by, from a PEM file.
fn roots(ca: &Path) -> Result<RootCertStore, ClientError> {
    let failed = |why: String| {
        ClientError::Agent(AgentError::NoCa {
            ca: ca.to_owned(),
            why,
        })
    };
    let mut roots = RootCertStore::empty();
    let read = CertificateDer::pem_file_iter(ca).map_err(|error| failed(error.to_string()))?;
    for certificate in read {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        let added = roots.add(certificate);
        added.map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(failed("there is none".to_owned()));
    }
    Ok(roots)
}

pub(crate) fn unreachable(endpoint: &Endpoint, source: io::Error) -> ClientError {
    let endpoint = endpoint.to_string();
    ClientError::Agent(AgentError::Unreachable { endpoint, source })
}

pub(crate) fn broken(endpoint: &Endpoint, source: io::Error) -> ClientError {
    let endpoint = endpoint.to_string();
    ClientError::Agent(AgentError::Gone { endpoint, source })
}

pub(crate) fn strange(endpoint: &Endpoint, what: &str) -> ClientError {
    ClientError::Agent(AgentError::NotAnAgent {
        endpoint: endpoint.to_string(),
        what: what.to_owned(),
    })
}
