//! `/ws`: a WebSocket to the probe of one target, whose every action is in the audit log.
//!
//! Neither end waits for the other while a third has something to say; what cannot be passed on is not taken in.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message as Said, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use probing_client::{AttachOptions, ClientError, ConnectedProbe, Entry, Target, is_offered};
use probing_proto::agent::{ATTACHED_HEADER, AttachedByAgent, RelayRequest};
use probing_proto::message::{Call, Event, Failure, Message, Request, RequestId};
use probing_proto::process::Pid;
use probing_proto::wire::websocket::{Packet, id_in};
use probing_proto::wire::{self, Decoder, Frame, MAX_ANSWER, MAX_REQUEST};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::agent::Agent;
use crate::handlers::in_turn;
use crate::http::refusal::Refused;
use crate::http::request::{Caller, ClientConnection, QueryParams};
use crate::security::audit_log::Actor;
use crate::target_selection;

/// Silence after which a client is asked whether it is there.
const QUIET: Duration = Duration::from_secs(20);
/// Who does not say so by then is not.
const GONE: Duration = Duration::from_mins(1);
/// For the other end of a WebSocket to say goodbye, too.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// For the thread of a probe that has left to end; and how often to look.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
const LEAVE_INTERVAL: Duration = Duration::from_millis(1);
/// A message is a frame of this length, and a little around it.
const MAX_MESSAGE_BYTES: usize = MAX_REQUEST + 64;

pub(crate) async fn relay(
    State(agent): State<Arc<Agent>>,
    Extension(caller): Extension<Caller>,
    Extension(guest): Extension<ClientConnection>,
    QueryParams(request): QueryParams<RelayRequest>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refused> {
    let upgrade = upgrade.map_err(|_other| {
        Refused::bad("this path needs WebSocket, version 13")
            .field(header::SEC_WEBSOCKET_VERSION, "13")
    })?;
    let pid = request.pid;
    let clerk = RequestAuditor {
        agent: Arc::clone(&agent),
        actor: caller.actor.clone(),
        pid,
        is_to_leave: Arc::default(),
    };
    let reached = in_turn(agent, caller, move |agent, caller| {
        reach(agent, caller, &request)
    });
    let reached = reached.await?;
    let attached = reached.attached.as_ref().map(|report| AttachedByAgent {
        strategy: report.strategy.to_string(),
        python: report.python,
        paused_seconds: report.paused.as_secs_f64(),
        took_seconds: report.took.as_secs_f64(),
    });
    let thread = reached.probe.thread();
    let (hello, probe, rest) = reached.probe.into_socket();
    let event = Event::Hello(hello);
    let said = wire::encode(&Message { id: None, event }, &[], MAX_ANSWER);
    let mut said = said.map_err(|error| crate::handlers::failed(&error))?;
    said.extend(rest);
    let upgrade = upgrade
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES);
    let mut response = upgrade.on_upgrade(async move |socket| {
        // Counted as a connection until it ends.
        let _guest = guest;
        // Either end may go away at any time.
        converse(socket, (probe, thread), &said, clerk).await.ok();
    });
    let attached = attached.and_then(|attached| serde_json::to_string(&attached).ok());
    if let (Some(attached), Ok(name)) = (attached, ATTACHED_HEADER.parse::<HeaderName>())
        && let Ok(value) = HeaderValue::from_str(&attached)
    {
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

fn reach(
    agent: &Agent,
    Caller {
        actor, requester, ..
    }: &Caller,
    &RelayRequest { pid, attach }: &RelayRequest,
) -> Result<ConnectedProbe, Refused> {
    if !is_offered(pid) {
        return Err(target_selection::no_target(pid));
    }
    agent.note(actor, "connect", Some(pid), None)?;
    let target = Target::Local(pid);
    let reached = match target.connect(&Entry::Forbidden) {
        Err(ClientError::NoProbe { .. }) if attach => {
            requester
                .check()
                .map_err(|error| target_selection::refused(&error))?;
            agent.note(actor, "attach", Some(pid), None)?;
            target.connect(&Entry::Attach(AttachOptions::default()))
        }
        reached => reached,
    };
    reached.map_err(|error| target_selection::refused(&error))
}

/// Passes on what comes, until one of them ends. A probe whose client has gone stops what that had asked for.
async fn converse(
    socket: WebSocket,
    (probe, thread): (UnixStream, Option<PathBuf>),
    said: &[u8],
    clerk: RequestAuditor,
) -> io::Result<()> {
    probe.set_nonblocking(true)?;
    let (from_probe, to_probe) = tokio::net::UnixStream::from_std(probe)?.into_split();
    let (mut to_client, mut from_client) = socket.split();
    let (refusals, refused) = mpsc::channel(1);
    let is_to_leave = Arc::clone(&clerk.is_to_leave);
    tokio::select! {
        ended = requests(&mut from_client, to_probe, refusals, clerk) => return ended,
        ended = answers(&mut to_client, from_probe, said, refused) => ended?,
    }
    if let Some(thread) = thread.filter(|_| is_to_leave.load(Ordering::Acquire)) {
        // Its thread closes the connection a moment before it ends. One that stays has left all the same.
        let gone = async {
            while thread.exists() {
                sleep(LEAVE_INTERVAL).await;
            }
        };
        timeout(LEAVE_TIMEOUT, gone).await.ok();
    }
    // The probe has ended. As one should: the other end reads all that was said before.
    let farewell = async {
        to_client.close().await.map_err(io::Error::other)?;
        while let Some(Ok(_)) = from_client.next().await {}
        io::Result::Ok(())
    };
    timeout(CLOSE_TIMEOUT, farewell).await?
}

/// To the probe, what is a message and has been written down.
async fn requests(
    from_client: &mut SplitStream<WebSocket>,
    mut to_probe: OwnedWriteHalf,
    refusals: mpsc::Sender<Message>,
    clerk: RequestAuditor,
) -> io::Result<()> {
    while let Some(said) = timeout(GONE, from_client.next()).await? {
        let packet = match said.map_err(io::Error::other)? {
            Said::Text(text) => Packet::Text(text.as_str().to_owned()),
            Said::Binary(bytes) => Packet::Binary(bytes.into()),
            Said::Ping(_) | Said::Pong(_) => continue,
            Said::Close(_) => break,
        };
        match clerk.checked(packet) {
            Ok(bytes) => to_probe.write_all(&bytes).await?,
            Err((id, failure)) => {
                let event = Event::Failed(failure);
                let sent = refusals.send(Message { id, event }).await;
                sent.map_err(io::Error::other)?;
            }
        }
    }
    Ok(())
}

/// To the client, what the probe says and what was refused; and now and then a question whether it is there.
async fn answers(
    to_client: &mut SplitSink<WebSocket, Said>,
    mut from_probe: OwnedReadHalf,
    said: &[u8],
    mut refused: mpsc::Receiver<Message>,
) -> io::Result<()> {
    let mut decoder = Decoder::new(MAX_ANSWER);
    decoder.push(said);
    let mut buffer = vec![0; 16 << 10];
    loop {
        while let Some(frame) = next_frame(&mut decoder)? {
            to_client
                .feed(packed(frame))
                .await
                .map_err(io::Error::other)?;
        }
        to_client.flush().await.map_err(io::Error::other)?;
        tokio::select! {
            read = from_probe.read(&mut buffer) => match read? {
                0 => return Ok(()),
                length => decoder.push(&buffer[..length]),
            },
            Some(refusal) = refused.recv() => {
                let text = serde_json::to_string(&refusal)?;
                to_client.send(Said::text(text)).await.map_err(io::Error::other)?;
            }
            () = sleep(QUIET) => {
                let question = Said::Ping(Vec::new().into());
                to_client.send(question).await.map_err(io::Error::other)?;
            }
        }
    }
}

fn next_frame(decoder: &mut Decoder) -> io::Result<Option<Frame>> {
    let frame = decoder.next_frame();
    frame.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

fn packed(frame: Frame) -> Said {
    match Packet::from(frame) {
        Packet::Text(json) => Said::text(json),
        Packet::Binary(bytes) => Said::binary(bytes),
    }
}

/// Writes down what is asked of the probe.
struct RequestAuditor {
    agent: Arc<Agent>,
    actor: Actor,
    pid: Pid,
    /// The probe has been asked to leave.
    is_to_leave: Arc<AtomicBool>,
}

impl RequestAuditor {
    /// What goes on to the probe, or what the client is told instead of which request.
    fn checked(&self, packet: Packet) -> Result<Vec<u8>, (Option<RequestId>, Failure)> {
        let Some(frame) = packet.into_frame(MAX_REQUEST) else {
            let failure = Failure::new("message not understood: incomplete frame");
            return Err((None, failure));
        };
        let checked = self.check(&frame).and_then(|()| {
            let bytes = frame.to_bytes(MAX_REQUEST);
            bytes.map_err(|error| Failure::new(error.to_string()))
        });
        checked.map_err(|failure| (id_in(&frame), failure))
    }

    fn check(&self, frame: &Frame) -> Result<(), Failure> {
        let request: Request = frame
            .message()
            .map_err(|error| Failure::new(error.to_string()))?;
        if matches!(request.call, Call::Detach) {
            self.is_to_leave.store(true, Ordering::Release);
        }
        let Some((action, code)) = audited(&request.call) else {
            return Ok(());
        };
        self.agent.touch();
        let noted = self
            .agent
            .note(&self.actor, action, Some(self.pid), code.as_deref());
        noted.map_err(|refused| refused.refusal.failure)
    }
}

/// What the audit log calls a request to a probe, and the rest of it; none for what is only about a request that was written
/// down before. Each is named, so that a new one is decided about.
fn audited(call: &Call) -> Option<(&'static str, Option<String>)> {
    let json = |value: Result<String, serde_json::Error>| value.ok();
    let all = || json(serde_json::to_string(call));
    let (action, code) = match call {
        Call::Eval(eval) => ("eval", Some(eval.code.clone())),
        Call::Arm(arm) => ("arm", json(serde_json::to_string(arm))),
        Call::Disarm { .. } => ("disarm", all()),
        Call::Trace(trace) => ("trace", json(serde_json::to_string(trace))),
        Call::Untrace { .. } => ("untrace", all()),
        Call::Torch(asked) => ("torch", json(serde_json::to_string(asked))),
        Call::Drive { .. } | Call::Follow { driving: true } => ("drive", None),
        Call::Step(_) => ("step", None),
        Call::Release { .. } => ("release", None),
        Call::Record(_) => ("record", None),
        Call::Tracer(asked) => ("tracer", json(serde_json::to_string(asked))),
        Call::GuardTraps => ("guard_traps", None),
        Call::Detach => ("detach", None),
        // These run nothing that the program notices, and disclose what it holds.
        Call::Locals(_) => ("locals", all()),
        Call::Memory { .. } => ("memory", all()),
        Call::File(_) => ("file", all()),
        Call::Source { .. } => ("source", all()),
        Call::Complete(_) => ("complete", all()),
        Call::Describe(_) => ("describe", all()),
        Call::Heap => ("heap", None),
        Call::Points => ("points", None),
        Call::Traces => ("traces", None),
        Call::Stops => ("stops", None),
        Call::Follow { driving: false } => ("follow", None),
        Call::Progress { .. } | Call::Cancel { .. } => return None,
    };
    Some((action, code))
}
