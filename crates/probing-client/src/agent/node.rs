//! A typed handle on an agent: what is asked of it, and of the targets on its machine.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use probing_proto::agent::{
    ARROW_STREAM, ATTACHED_HEADER, AttachedByAgent, END_TRAILER, NodeReport, QueryEnd,
    QueryRequest, Refusal, RelayRequest, SamplesReport, SamplesRequest, StacksRequest,
    TargetsRequest,
};
use probing_proto::process::Pid;
use probing_proto::report::SetReport;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tungstenite::handshake::client::generate_key;
use tungstenite::handshake::derive_accept_key;

use super::endpoint::{self, Endpoint};
use super::http::{self, Response};
use super::keys::Keys;
use super::pinned::{Fingerprint, OtherCertificate, Pinned};
use super::stream::{Stream, Timed};
use super::{known, local, relay, ssh};
use crate::connection::PATIENCE;
use crate::error::ClientError;
use crate::probe::Probe;
use crate::target::Entry;

/// For each address of a host to take a connection.
const CONNECT: Duration = Duration::from_secs(4);
/// Beyond what it does itself, for a request to travel and wait for its turn.
const TRAVEL: Duration = Duration::from_secs(10);
/// An agent ends queries that take longer than it allows; this only notices one that is gone.
const LONGEST_QUERY: Duration = Duration::from_hours(1);
/// Beyond this an answer is not kept in memory.
const MOST: u64 = 256 << 20;

/// The agent of one machine.
pub struct Node {
    endpoint: Endpoint,
    keys: Keys,
    way: OnceLock<Way>,
    /// What its machine is called, once it was said.
    host: OnceLock<String>,
    /// What is to be said about how it was reached.
    notes: Mutex<Vec<String>>,
}

/// How it is reached.
#[derive(Clone)]
struct Way {
    addresses: Vec<SocketAddr>,
    token: Option<String>,
    /// In plain text.
    plain: bool,
    expected: Option<Fingerprint>,
    /// Those whose word counts instead.
    vouching: Option<Arc<RootCertStore>>,
    /// It is an agent of ours on this machine.
    ours: bool,
}

/// What a request is made of.
struct Ask<'a> {
    method: &'a str,
    path: String,
    accept: &'a str,
    /// JSON.
    body: Option<Vec<u8>>,
    /// How it wants to go on, when it is not for an answer.
    upgrade: Option<&'a str>,
    patience: Duration,
}

impl Ask<'_> {
    fn get(path: &str, query: &impl Serialize, patience: Duration) -> Self {
        let query = serde_urlencoded::to_string(query).unwrap_or_default();
        Self {
            method: "GET",
            path: format!("{path}?{query}"),
            accept: "application/json",
            body: None,
            upgrade: None,
            patience,
        }
    }

    /// Without a token for who needs none.
    fn bytes(&self, host: &str, token: Option<&str>) -> Vec<u8> {
        let Self {
            method,
            path,
            accept,
            ..
        } = self;
        let version = env!("CARGO_PKG_VERSION");
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: probing/{version}\r\nAccept: {accept}\r\n"
        );
        if let Some(token) = token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        match self.upgrade {
            Some(key) => head.push_str(&format!(
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            )),
            // What is known only behind the rows is said there.
            None => head.push_str("Connection: close, TE\r\nTE: trailers\r\n"),
        }
        if let Some(body) = &self.body {
            let length = body.len();
            head.push_str(&format!(
                "Content-Type: application/json\r\nContent-Length: {length}\r\n"
            ));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(self.body.iter().flatten());
        bytes
    }
}

impl Node {
    pub fn new(endpoint: Endpoint, keys: Keys) -> Self {
        Self {
            endpoint,
            keys,
            way: OnceLock::new(),
            host: OnceLock::new(),
            notes: Mutex::default(),
        }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What is to be said about how it was reached, once.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut notes)
    }

    /// Who is there; and who was, when the `dead` are wanted.
    pub fn targets(&self, dead: bool) -> Result<NodeReport, ClientError> {
        let report: NodeReport =
            self.json(&Ask::get("/targets", &TargetsRequest { dead }, TRAVEL))?;
        self.host.get_or_init(|| report.host.clone());
        Ok(report)
    }

    /// What its machine is called. Asked for when nobody has heard it yet.
    pub fn host(&self) -> Option<&str> {
        if self.host.get().is_none() {
            self.targets(false).ok()?;
        }
        self.host.get().map(String::as_str)
    }

    /// The stacks of one process: as the request says, which names it.
    pub(crate) fn stacks<R: DeserializeOwned>(
        &self,
        request: &StacksRequest,
    ) -> Result<R, ClientError> {
        let ask = Ask::get("/backtrace", request, 2 * TRAVEL);
        let answer: SetReport<R> = self.json(&ask)?;
        let report = answer.targets.into_iter().find_map(|target| target.report);
        report.ok_or_else(|| self.strange("an answer without a report"))
    }

    pub(crate) fn samples(&self, request: &SamplesRequest) -> Result<SamplesReport, ClientError> {
        let took = Duration::try_from_secs_f64(request.seconds).unwrap_or_default();
        self.json(&Ask::get("/samples", request, took + TRAVEL))
    }

    /// The rows that a query gives, as a stream of Arrow's IPC format.
    pub fn query(&self, sql: &str, pids: Vec<Pid>) -> Result<Rows, ClientError> {
        let request = QueryRequest {
            sql: sql.to_owned(),
            rank: None,
            ranks: None,
            pid: None,
            pids,
        };
        let ask = Ask {
            method: "POST",
            path: "/query".to_owned(),
            accept: ARROW_STREAM,
            body: serde_json::to_vec(&request).ok(),
            upgrade: None,
            patience: LONGEST_QUERY,
        };
        let response = self.answered(&ask)?;
        Ok(Rows {
            endpoint: self.endpoint.clone(),
            response,
        })
    }

    /// A conversation with the probe of a process there, which is brought in if that is wanted; and then, that it was.
    pub(crate) fn connect(
        &self,
        pid: Pid,
        entry: &Entry,
    ) -> Result<(Probe, Option<AttachedByAgent>), ClientError> {
        let key = generate_key();
        let (attach, patience) = match entry {
            Entry::Attach(options) => (true, options.deadline + TRAVEL),
            Entry::Forbidden => (false, TRAVEL),
        };
        let ask = Ask {
            upgrade: Some(&key),
            ..Ask::get("/ws", &RelayRequest { pid, attach }, patience)
        };
        let response = self.answered(&ask)?;
        let accept = response.header("sec-websocket-accept");
        if response.status != 101 || accept != Some(&derive_accept_key(key.as_bytes())) {
            return Err(self.strange("it does not speak WebSocket"));
        }
        let attached = response.header(ATTACHED_HEADER);
        let attached = attached.and_then(|text| serde_json::from_str(text).ok());
        let (stream, ahead) = response.into_stream();
        let socket = relay::bridged(stream, ahead).map_err(|source| self.broken(source))?;
        Ok((Probe::over(socket, 2 * PATIENCE)?, attached))
    }

    fn json<R: DeserializeOwned>(&self, ask: &Ask<'_>) -> Result<R, ClientError> {
        let mut response = self.answered(ask)?;
        let bytes = response.bytes(MOST).map_err(|source| self.broken(source))?;
        serde_json::from_slice(&bytes).map_err(|error| self.strange(&error.to_string()))
    }

    /// The answer, when it is none of refusal.
    fn answered(&self, ask: &Ask<'_>) -> Result<Response, ClientError> {
        let deadline = Instant::now() + ask.patience;
        let (stream, request) = match &self.endpoint {
            Endpoint::Port { host, port } => self.open((host, *port), deadline, ask)?,
            Endpoint::Ssh { destination, port } => {
                let started = ssh::start(destination, *port);
                let (socket, child) = started.map_err(|source| self.not_over_ssh(source))?;
                let mut timed = Timed::over_ssh(socket, child);
                let timed = timed.set_deadline(Some(deadline)).map(|()| timed);
                let timed = timed.map_err(|source| self.broken(source))?;
                (Box::new(timed) as Stream, ask.bytes("localhost", None))
            }
        };
        let exchanged = http::exchange(stream, &request);
        let mut response = exchanged.map_err(|source| match source.kind() {
            // What SSH has to say about it, it has said.
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                if matches!(self.endpoint, Endpoint::Ssh { .. }) =>
            {
                self.not_over_ssh(source)
            }
            ErrorKind::InvalidData => self.strange(&source.to_string()),
            ErrorKind::TimedOut => ClientError::TooLong {
                patience: ask.patience,
            },
            _ => self.broken(source),
        })?;
        if matches!(response.status, 101 | 200) {
            return Ok(response);
        }
        let bytes = response.bytes(1 << 20).unwrap_or_default();
        match serde_json::from_slice::<Refusal>(&bytes) {
            Ok(refusal) => Err(ClientError::Agent {
                endpoint: self.endpoint.to_string(),
                status: response.status,
                refusal,
            }),
            Err(_) => Err(self.strange(&format!("status {}", response.status))),
        }
    }

    fn way(&self, (host, port): (&str, u16)) -> Result<&Way, ClientError> {
        if let Some(way) = self.way.get() {
            return Ok(way);
        }
        let addresses = endpoint::addresses(host, port);
        let addresses = addresses.map_err(|source| self.unreachable(source))?;
        let is_loopback =
            !addresses.is_empty() && addresses.iter().all(|address| address.ip().is_loopback());
        let ours = local::at(port)
            .filter(|standing| is_loopback && standing.lives && standing.state.trouble.is_none());
        let local_pin = ours.as_ref().and_then(|standing| {
            let fingerprint = standing.state.fingerprint.as_ref();
            fingerprint.and_then(|text| text.parse().ok())
        });
        let keys = &self.keys;
        let pin = keys.fingerprint.or(local_pin);
        let vouching = match &keys.ca {
            Some(ca) if keys.fingerprint.is_none() => Some(Arc::new(roots(ca)?)),
            _ => None,
        };
        let way = Way {
            vouching,
            plain: match &ours {
                Some(standing) => standing.state.fingerprint.is_none(),
                None => keys.plain && is_loopback,
            },
            // Shown to nobody but an agent of ours: whoever else listens there would learn it.
            token: keys
                .token
                .clone()
                .or_else(|| ours.as_ref().and_then(|_| local::token())),
            expected: pin.or_else(|| known::fingerprint(&self.endpoint)),
            ours: ours.is_some(),
            addresses,
        };
        Ok(self.way.get_or_init(|| way))
    }

    /// A connection to a port, and the request as it is sent there.
    fn open(
        &self,
        (host, port): (&str, u16),
        deadline: Instant,
        ask: &Ask<'_>,
    ) -> Result<(Stream, Vec<u8>), ClientError> {
        let way = self.way((host, port))?;
        let Some(token) = &way.token else {
            let endpoint = self.endpoint.to_string();
            return Err(ClientError::NoToken { endpoint });
        };
        let (tcp, address) = self.dial(way)?;
        let opened = Timed::over_tcp(tcp).and_then(|mut tcp| {
            tcp.set_deadline(Some(deadline))?;
            Ok(tcp)
        });
        let tcp = opened.map_err(|source| self.broken(source))?;
        let request = ask.bytes(&address.to_string(), Some(token));
        if way.plain {
            return Ok((Box::new(tcp), request));
        }
        Ok((self.proven(way, host, tcp)?, request))
    }

    fn dial(&self, way: &Way) -> Result<(TcpStream, SocketAddr), ClientError> {
        let mut last = io::Error::from(ErrorKind::NotFound);
        for address in &way.addresses {
            match TcpStream::connect_timeout(address, CONNECT) {
                Ok(tcp) => return Ok((tcp, *address)),
                Err(error) => last = error,
            }
        }
        Err(self.unreachable(last))
    }

    /// Within TLS, at the end of which is who is expected.
    fn proven(&self, way: &Way, host: &str, mut tcp: Timed) -> Result<Stream, ClientError> {
        let pinned = Pinned::new(way.expected);
        let config = ClientConfig::builder_with_provider(pinned.provider())
            .with_protocol_versions(&[&rustls::version::TLS13]);
        let config = match (config, &way.vouching) {
            (Ok(config), Some(roots)) => Ok(config
                .with_root_certificates(Arc::clone(roots))
                .with_no_client_auth()),
            (Ok(config), None) => Ok(config
                .dangerous()
                .with_custom_certificate_verifier(Arc::clone(&pinned) as _)
                .with_no_client_auth()),
            (Err(error), _) => Err(error),
        };
        let name = ServerName::try_from(host.to_owned());
        let (Ok(config), Ok(name)) = (config, name) else {
            return Err(self.strange("its name is none that TLS knows"));
        };
        let mut connection = ClientConnection::new(Arc::new(config), name)
            .map_err(|error| self.strange(&error.to_string()))?;
        while connection.is_handshaking() {
            if let Err(error) = connection.complete_io(&mut tcp) {
                return Err(self.not_proven(way, error));
            }
        }
        if let (None, Some(seen)) = (way.expected, pinned.seen()) {
            // Those whom others vouch for are not looked at here, and not remembered.
            self.remember(seen);
        }
        Ok(Box::new(StreamOwned::new(connection, tcp)))
    }

    fn remember(&self, seen: Fingerprint) {
        let endpoint = &self.endpoint;
        if known::fingerprint(endpoint) == Some(seen) {
            return;
        }
        let note = match known::remember(endpoint, seen) {
            Ok(Some(path)) => format!("remembered in {}", path.display()),
            Ok(None) => "not remembered: there is no home folder".to_owned(),
            Err(error) => format!("not remembered: {error}"),
        };
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(format!(
            "note: first contact with the agent at {endpoint}, whose certificate is {seen} ({note}); \
             compare it with what the agent printed"
        ));
    }

    fn not_proven(&self, way: &Way, error: io::Error) -> ClientError {
        let endpoint = self.endpoint.to_string();
        let tls = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::Other(other)) => match other.0.downcast_ref() {
                Some(OtherCertificate(seen)) => ClientError::OtherCertificate {
                    endpoint,
                    seen: seen.to_string(),
                    expected: way.expected.map(|expected| expected.to_string()),
                    remembered: if self.keys.fingerprint.is_some() || way.ours {
                        None
                    } else {
                        known::path()
                    },
                },
                None => ClientError::NotTls { endpoint },
            },
            Some(rustls::Error::InvalidMessage(_)) => ClientError::NotTls { endpoint },
            Some(rustls::Error::InvalidCertificate(why)) => ClientError::NotVouchedFor {
                endpoint,
                why: why.to_string(),
                ca: self.keys.ca.clone().unwrap_or_default(),
            },
            Some(rustls::Error::AlertReceived(AlertDescription::AccessDenied)) => {
                ClientError::AddressRefused { endpoint }
            }
            Some(other) => self.strange(&other.to_string()),
            None => self.broken(error),
        }
    }

    fn not_over_ssh(&self, source: io::Error) -> ClientError {
        let endpoint = self.endpoint.to_string();
        ClientError::NotOverSsh { endpoint, source }
    }

    fn unreachable(&self, source: io::Error) -> ClientError {
        let endpoint = self.endpoint.to_string();
        ClientError::NoAgent { endpoint, source }
    }

    fn broken(&self, source: io::Error) -> ClientError {
        let endpoint = self.endpoint.to_string();
        ClientError::AgentGone { endpoint, source }
    }

    fn strange(&self, what: &str) -> ClientError {
        strange(&self.endpoint, what)
    }
}

/// Those who vouch for agents, from a PEM file.
fn roots(ca: &Path) -> Result<RootCertStore, ClientError> {
    let failed = |why: String| ClientError::NoCa {
        ca: ca.to_owned(),
        why,
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

fn strange(endpoint: &Endpoint, what: &str) -> ClientError {
    ClientError::NotAnAgent {
        endpoint: endpoint.to_string(),
        what: what.to_owned(),
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.endpoint).finish()
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.endpoint == other.endpoint
    }
}

impl Eq for Node {}

/// Rows on their way, as bytes of Arrow's stream format.
#[derive(Debug)]
pub struct Rows {
    endpoint: Endpoint,
    response: Response,
}

impl Rows {
    /// What is known when all have come.
    pub fn end(&mut self) -> Result<QueryEnd, ClientError> {
        // Readers of Arrow stop at its mark, which is before the end.
        let rest = io::copy(&mut self.response.body, &mut io::sink());
        rest.map_err(|source| ClientError::AgentGone {
            endpoint: self.endpoint.to_string(),
            source,
        })?;
        let end = self.response.body.trailer(END_TRAILER);
        let end = end.and_then(|text| serde_json::from_str(text).ok());
        end.ok_or_else(|| strange(&self.endpoint, "rows without an end"))
    }
}

impl Read for Rows {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.response.body.read(buffer)
    }
}
