//! The listener: TCP from permitted addresses, and a Unix socket of this machine; one request per connection.
//!
//! What follows a request on its connection is never read as another: there is nothing to smuggle it past.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use probing_client::ChannelBinding;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use crate::agent::Agent;
use crate::http::connection::Connection;
use crate::http::refusal::Refused;
use crate::http::request::{
    ARRIVAL, ClientConnection, MAX_HEAD_BYTES, MAX_HEADER_FIELDS, Visitor, late,
};
use crate::http::routes;
use crate::security::capacity::ConnectionSlot;
use crate::security::rate_limit::Network;

/// For the first byte to come.
const IDLE: Duration = Duration::from_secs(5);
/// For a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The pause when this process has no room for another connection.
const BREATHER: Duration = Duration::from_millis(100);
/// How a TLS conversation begins: with a handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// TLS for: you may not. Needs nothing of the other end to be read.
const ACCESS_DENIED: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 49];

/// Takes connections from the network for ever.
pub(crate) async fn listen(listener: TcpListener, agent: Arc<Agent>) {
    let router = routes::router(&agent);
    loop {
        match listener.accept().await {
            Ok((tcp, from)) => take(&agent, &router, tcp, from),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => sleep(BREATHER).await,
        }
    }
}

fn take(agent: &Arc<Agent>, router: &Router, tcp: TcpStream, from: SocketAddr) {
    // Before it takes a place from anybody.
    if !agent.door.admits(from.ip()) {
        if let Some(place) = agent.places.to_turn_away() {
            let agent = Arc::clone(agent);
            tokio::spawn(async move {
                let _place = place;
                turn_away(&agent, tcp, from).await.ok();
            });
        }
        return;
    }
    let entrance = agent.places.knock(Network::of(from.ip()));
    let serving = serve(
        Arc::clone(agent),
        router.clone(),
        tcp,
        (from, Arc::clone(&entrance)),
    );
    let task = tokio::spawn(async {
        // Who hangs up in the middle has nothing to be told.
        serving.await.ok();
    });
    entrance.served_by(task.abort_handle());
}

async fn serve(
    agent: Arc<Agent>,
    router: Router,
    tcp: TcpStream,
    (from, entrance): (SocketAddr, Arc<ConnectionSlot>),
) -> io::Result<()> {
    // A message is one write, and the other end waits for it.
    tcp.set_nodelay(true)?;
    let Some((connection, binding)) = opened(&agent, tcp).await? else {
        return Ok(());
    };
    let guest = ClientConnection {
        visitor: Visitor::Network(from),
        binding,
        entrance,
    };
    converse(connection, router, guest).await
}

/// Takes connections of this machine for ever: of the agent's own user and of root, by the kernel's word.
pub(crate) async fn listen_here(listener: UnixListener, agent: Arc<Agent>) {
    let router = routes::router(&agent);
    let own = rustix::process::geteuid().as_raw();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(BREATHER).await;
            continue;
        };
        let Ok(peer) = stream.peer_cred() else {
            continue;
        };
        let uid = peer.uid();
        if uid != own && uid != 0 {
            continue;
        }
        let guest = ClientConnection {
            visitor: Visitor::Local { uid },
            binding: None,
            entrance: agent.places.known(),
        };
        let serving = converse(Connection::over(stream), router.clone(), guest);
        tokio::spawn(async {
            serving.await.ok();
        });
    }
}

/// One request and its answer.
pub(crate) async fn converse(
    mut connection: Connection,
    router: Router,
    guest: ClientConnection,
) -> io::Result<()> {
    let heard = connection.clone();
    let service = service_fn(move |mut request: hyper::Request<_>| {
        heard.hear();
        request.extensions_mut().insert(guest.clone());
        router.clone().call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ARRIVAL)
        .max_headers(MAX_HEADER_FIELDS)
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(connection.clone()), service)
        .with_upgrades()
        .await;
    if let Err(error) = served
        && let Some(refused) = unread(&error).filter(|_| !connection.was_heard())
    {
        connection.say(&refused.to_bytes()).await?;
    }
    connection.end().await;
    Ok(())
}

/// A connection over which requests can come, and what binds a proof to it; none when whoever is there was told that it is
/// not one.
async fn opened(
    agent: &Agent,
    tcp: TcpStream,
) -> io::Result<Option<(Connection, Option<ChannelBinding>)>> {
    let mut first = [0];
    let came = timeout(IDLE, tcp.peek(&mut first)).await?;
    let is_handshake = first == [TLS_HANDSHAKE];
    let refused = match (agent.tls(), is_handshake) {
        _ if came? == 0 => return Ok(None),
        (None, false) => return Ok(Some((Connection::over(tcp), None))),
        (Some(certificate), true) => {
            let acceptor = TlsAcceptor::from(Arc::clone(&certificate.config));
            let stream = timeout(HANDSHAKE, acceptor.accept(tcp)).await??;
            let binding = ChannelBinding::of(stream.get_ref().1).ok();
            return Ok(Some((Connection::over(stream), binding)));
        }
        (Some(_), false) => Refused::bad("this port accepts TLS only")
            .hint("use `probing -t HOST:PORT`, or https://"),
        (None, true) => Refused::bad("this port accepts plain text, not TLS")
            .hint("use http://; an agent uses TLS except on loopback addresses"),
    };
    let mut connection = Connection::over(tcp);
    connection.say(&refused.to_bytes()).await?;
    connection.end().await;
    Ok(None)
}

/// Nothing that came from there is looked at.
async fn turn_away(agent: &Agent, tcp: TcpStream, from: SocketAddr) -> io::Result<()> {
    let mut connection = Connection::over(tcp);
    if agent.tls().is_some() {
        connection.say(&ACCESS_DENIED).await?;
    } else {
        let address = from.ip();
        let words = format!("this address is not in the ranges: {address}");
        let refused = Refused::new(StatusCode::FORBIDDEN, words)
            .hint("the agent was started with --allow or PROBING_ALLOW");
        connection.say(&refused.to_bytes()).await?;
    }
    connection.end().await;
    Ok(())
}

/// What is said to who sent no request.
fn unread(error: &hyper::Error) -> Option<Refused> {
    if error.is_timeout() {
        Some(late())
    } else if error.is_parse_too_large() {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        let words = format!(
            "a head of more than {MAX_HEAD_BYTES} bytes, or of more than {MAX_HEADER_FIELDS} fields"
        );
        Some(Refused::new(status, words).hint("send less of it"))
    } else if error.is_parse() {
        Some(Refused::bad(format!("no HTTP/1.1 request: {error}")))
    } else if error.is_incomplete_message() {
        Some(Refused::bad("half a request"))
    } else {
        None
    }
}
