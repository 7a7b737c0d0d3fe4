//! A typed handle on an agent and on the targets of its machine.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use probing_proto::agent::{
    ARROW_STREAM, ATTACHED_HEADER, AttachedByAgent, END_TRAILER, NodeReport, QueryEnd,
    QueryRequest, Refusal, RelayRequest, SamplesReport, SamplesRequest, StacksRequest,
    TargetsRequest,
};
use probing_proto::process::Pid;
use probing_proto::report::SetReport;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tungstenite::handshake::client::generate_key;
use tungstenite::handshake::derive_accept_key;

use crate::agent::endpoint::Endpoint;
use crate::agent::http::{self, Response};
use crate::agent::keys::Keys;
use crate::agent::route::{self, Route, strange};
use crate::agent::stream::{Stream, Timed};
use crate::agent::{relay, ssh};
use crate::error::{AgentError, ClientError};
use crate::probe::connection::CONNECT_TIMEOUT;
use crate::probe::{Entry, Probe};

/// Beyond what it does itself, for a request to travel and wait for its turn.
const TRAVEL: Duration = Duration::from_secs(10);
/// An agent ends queries that take longer than it allows; this only notices one that is gone.
const QUERY_TIMEOUT: Duration = Duration::from_hours(1);
/// Beyond this an answer is not kept in memory.
const MAX_ANSWER_BYTES: u64 = 256 << 20;

/// The agent of one machine.
pub struct Node {
    endpoint: Endpoint,
    keys: Keys,
    way: Mutex<RouteState>,
    /// What its machine is called, once it was said.
    host: OnceLock<String>,
}

/// What is known of the way to it.
#[derive(Debug, Default)]
enum RouteState {
    #[default]
    Nothing,
    Resolved(Arc<Route>),
    /// Nobody has met it before, and the user does not trust its certificate.
    Refused {
        seen: String,
    },
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

    /// Without an authorization for who needs none.
    fn bytes(&self, host: &str, authorization: Option<&str>) -> Vec<u8> {
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
        if let Some(authorization) = authorization {
            head.push_str(&format!("Authorization: {authorization}\r\n"));
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
            way: Mutex::default(),
            host: OnceLock::new(),
        }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
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
    pub fn query(&self, sql: &str, pids: Vec<Pid>) -> Result<RowStream, ClientError> {
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
            patience: QUERY_TIMEOUT,
        };
        let response = self.answered(&ask)?;
        Ok(RowStream {
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
            return Err(self.strange("it does not support WebSocket"));
        }
        let attached = response.header(ATTACHED_HEADER);
        let attached = attached.and_then(|text| serde_json::from_str(text).ok());
        let (stream, ahead) = response.into_stream();
        let socket = relay::bridged(stream, ahead).map_err(|source| self.broken(source))?;
        Ok((Probe::over(socket, 2 * CONNECT_TIMEOUT)?, attached))
    }

    fn json<R: DeserializeOwned>(&self, ask: &Ask<'_>) -> Result<R, ClientError> {
        let mut response = self.answered(ask)?;
        let bytes = response
            .bytes(MAX_ANSWER_BYTES)
            .map_err(|source| self.broken(source))?;
        serde_json::from_slice(&bytes).map_err(|error| self.strange(&error.to_string()))
    }

    /// The answer, when it is none of refusal.
    fn answered(&self, ask: &Ask<'_>) -> Result<Response, ClientError> {
        let (stream, request) = match &self.endpoint {
            Endpoint::Port { host, port } => {
                // The user may have to be asked first, who takes as long as it takes.
                let way = self.way((host, *port))?;
                let deadline = Instant::now() + ask.patience;
                let opened = way.open(&self.endpoint, &self.keys, deadline)?;
                let request = ask.bytes(&opened.host, opened.authorization.as_deref());
                (opened.stream, request)
            }
            Endpoint::Ssh { destination, port } => {
                let started = ssh::start(destination, *port);
                let (socket, child) = started.map_err(|source| self.not_over_ssh(source))?;
                let mut timed = Timed::over_ssh(socket, child);
                let deadline = Some(Instant::now() + ask.patience);
                let timed = timed.set_deadline(deadline).map(|()| timed);
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
            Ok(refusal) => Err(ClientError::Agent(AgentError::Refused {
                endpoint: self.endpoint.to_string(),
                status: response.status,
                refusal,
            })),
            Err(_) => Err(self.strange(&format!("status {}", response.status))),
        }
    }

    /// How it is reached. Found once, and the user is asked at most once: whoever else needs it waits.
    fn way(&self, place: (&str, u16)) -> Result<Arc<Route>, ClientError> {
        let mut found = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        match &*found {
            RouteState::Resolved(way) => return Ok(Arc::clone(way)),
            RouteState::Refused { seen } => {
                return Err(ClientError::Agent(AgentError::FirstContact {
                    endpoint: self.endpoint.to_string(),
                    seen: seen.clone(),
                }));
            }
            RouteState::Nothing => {}
        }
        match Route::find(&self.endpoint, place, &self.keys) {
            Ok(route::ResolvedRoute { way, note }) => {
                if let (Some(note), Some(on_note)) = (note, self.keys.on_note) {
                    on_note(&note);
                }
                let way = Arc::new(way);
                *found = RouteState::Resolved(Arc::clone(&way));
                Ok(way)
            }
            Err(error) => {
                if let ClientError::Agent(AgentError::FirstContact { seen, .. }) = &error {
                    *found = RouteState::Refused { seen: seen.clone() };
                }
                Err(error)
            }
        }
    }

    fn not_over_ssh(&self, source: io::Error) -> ClientError {
        let endpoint = self.endpoint.to_string();
        ClientError::Agent(AgentError::NotOverSsh { endpoint, source })
    }

    fn broken(&self, source: io::Error) -> ClientError {
        route::broken(&self.endpoint, source)
    }

    fn strange(&self, what: &str) -> ClientError {
        strange(&self.endpoint, what)
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
pub struct RowStream {
    endpoint: Endpoint,
    response: Response,
}

impl RowStream {
    /// What is known when all have come.
    pub fn end(&mut self) -> Result<QueryEnd, ClientError> {
        // Readers of Arrow stop at its mark, which is before the end.
        let rest = io::copy(&mut self.response.body, &mut io::sink());
        rest.map_err(|source| {
            ClientError::Agent(AgentError::Gone {
                endpoint: self.endpoint.to_string(),
                source,
            })
        })?;
        let end = self.response.body.trailer(END_TRAILER);
        let end = end.and_then(|text| serde_json::from_str(text).ok());
        end.ok_or_else(|| strange(&self.endpoint, "rows without an end"))
    }
}

impl Read for RowStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.response.body.read(buffer)
    }
}
