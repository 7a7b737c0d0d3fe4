//! Takes connections: from addresses that may, so many at most, each on a thread of its own.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use probing_client::{Stream, TimedTcp};
use rustls::{ServerConnection, StreamOwned};

use crate::http::{self, Conversation, Refused, TLS_HANDSHAKE};
use crate::life::Agent;
use crate::routes;

/// For a TLS handshake; and to see that it is none.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// When there is no room for another connection in this process, so long.
const BREATHER: Duration = Duration::from_millis(100);
/// TLS for: you may not. Needs nothing of the other end to be read.
const ACCESS_DENIED: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 49];

/// Takes connections for ever.
pub(crate) fn listen(listener: &TcpListener, agent: &Arc<Agent>) {
    loop {
        let (tcp, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(_) => {
                thread::sleep(BREATHER);
                continue;
            }
        };
        let Some(place) = agent.place() else {
            // Full: whoever comes now is better told nothing than kept waiting.
            continue;
        };
        let agent = Arc::clone(agent);
        let spawned = thread::Builder::new()
            .name("connection".to_owned())
            .spawn(move || {
                // Who hangs up in the middle has nothing to be told.
                serve(&agent, tcp, from).ok();
                drop(place);
            });
        // Without a thread there is no conversation; the socket has gone with it.
        drop(spawned);
    }
}

fn serve(agent: &Arc<Agent>, tcp: TcpStream, from: SocketAddr) -> io::Result<()> {
    let mut tcp = TimedTcp::new(tcp)?;
    tcp.set_deadline(Some(Instant::now() + HANDSHAKE))?;
    if !agent.door.admits(from.ip()) {
        return turn_away(agent, tcp, from);
    }
    let stream: Stream = match agent.tls() {
        None => Box::new(tcp),
        Some(certificate) => {
            if tcp.peek()? != Some(TLS_HANDSHAKE) {
                let refused = Refused::new(400, "this port speaks TLS only")
                    .hint("use `probing -t HOST:PORT`, or https://");
                tcp.write_all(&http::refused_at_once(&refused))?;
                http::linger(&mut (Box::new(tcp) as Stream));
                return Ok(());
            }
            let mut connection =
                ServerConnection::new(Arc::clone(&certificate.config)).map_err(io::Error::other)?;
            while connection.is_handshaking() {
                connection.complete_io(&mut tcp)?;
            }
            Box::new(StreamOwned::new(connection, tcp))
        }
    };
    let mut conversation = Conversation::with(stream);
    while let Some(head) = conversation.next_head()? {
        let head = match head {
            Ok(head) => head,
            Err(refused) => return conversation.refuse(&refused),
        };
        match routes::serve(agent, conversation, &head, from)? {
            Some(goes_on) => conversation = goes_on,
            None => break,
        }
    }
    Ok(())
}

/// Nothing that came from there is looked at.
fn turn_away(agent: &Agent, mut tcp: TimedTcp, from: SocketAddr) -> io::Result<()> {
    if agent.tls().is_some() {
        tcp.write_all(&ACCESS_DENIED)?;
    } else {
        let address = from.ip();
        let refused = Refused::new(403, format!("this address is not in the ranges: {address}"))
            .hint("the agent was started with --allow or PROBING_ALLOW");
        tcp.write_all(&http::refused_at_once(&refused))?;
    }
    http::linger(&mut (Box::new(tcp) as Stream));
    Ok(())
}
