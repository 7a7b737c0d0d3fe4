//! The agents of this user on this machine, from their files in the runtime folder.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use probing_process::access::peer::Peer;
use probing_process::procfs::processes;
use probing_proto::agent::AgentState;
use probing_proto::paths::{self, AGENTS};
use probing_proto::process::ProcessKey;

use crate::agent::endpoint::Endpoint;
use crate::agent::route;
use crate::error::{ClientError, LocalError};
use crate::probe::private_socket::PrivateFolder;
use crate::probe::socket_path;

/// Between two attempts to connect to an agent that is busy.
const AGAIN: Duration = Duration::from_millis(2);

/// An agent that has been here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAgent {
    pub port: u16,
    /// The private folder in which it says so.
    runtime_dir: PathBuf,
    pub state: AgentState,
    /// Whether its process lives.
    pub lives: bool,
}

/// All of them, by their ports.
pub fn local_agents() -> Vec<LocalAgent> {
    let folders = socket_path::our_runtime_dirs().into_iter();
    let entries = folders.map(|folder| fs::read_dir(paths::agents_dir(&folder)));
    let port = |name: &str| name.strip_suffix(".json")?.parse().ok();
    let mut ports: Vec<u16> = entries
        .flatten()
        .flatten()
        .flatten()
        .filter_map(|entry| port(entry.file_name().to_str()?))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports.into_iter().filter_map(at).collect()
}

/// The one on this port.
pub(crate) fn at(port: u16) -> Option<LocalAgent> {
    let folders = socket_path::our_runtime_dirs().into_iter();
    let standing: Vec<LocalAgent> = folders
        .filter_map(|runtime_dir| {
            let text = fs::read(paths::agent_state_path(&runtime_dir, port)).ok()?;
            let state: AgentState = serde_json::from_slice(&text).ok()?;
            let key = ProcessKey {
                pid: state.pid,
                start_ticks: state.start_ticks,
            };
            Some(LocalAgent {
                port,
                runtime_dir,
                lives: processes::is_alive(key),
                state,
            })
        })
        .collect();
    // One that is gone may have left its word in another folder.
    standing.into_iter().max_by_key(|standing| standing.lives)
}

/// The one of this user that listens at one of these addresses of this machine: the whole address, and not only its port. Who
/// listens on the same port of another loopback address may be anybody.
pub(crate) fn listening(addresses: &[SocketAddr], port: u16) -> Option<LocalAgent> {
    let standing = at(port).filter(|found| found.lives && found.state.trouble.is_none())?;
    let listen: SocketAddr = standing.state.listen.parse().ok()?;
    let is_there = |address: &SocketAddr| address.ip().is_loopback() && covers(listen, *address);
    addresses.iter().any(is_there).then_some(standing)
}

/// Whether who listens there has the connections to this address.
fn covers(listen: SocketAddr, address: SocketAddr) -> bool {
    let (listen, ip) = (listen.ip(), address.ip().to_canonical());
    match listen {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => ip.is_ipv4(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => true,
        listen => listen.to_canonical() == ip,
    }
}

/// Connects to the socket of an agent of this user, and checks that it is its process that listens there.
pub(crate) fn dial(
    standing: &LocalAgent,
    endpoint: &Endpoint,
    patience: Duration,
) -> Result<UnixStream, ClientError> {
    let uid = rustix::process::geteuid().as_raw();
    let unreachable = |source: io::Error| route::unreachable(endpoint, source);
    let folder = PrivateFolder::open(&standing.runtime_dir, uid)?;
    let agents = folder.map(|folder| folder.enter(AGENTS)).transpose()?;
    let socket = match agents.flatten() {
        Some(agents) => agents.socket(&paths::agent_socket_name(standing.port))?,
        None => None,
    };
    let Some(socket) = socket else {
        return Err(unreachable(ErrorKind::NotFound.into()));
    };
    let until = Instant::now() + patience;
    let stream = loop {
        match socket.dial() {
            // So many connect at the same time that it has not accepted all of them yet.
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                thread::sleep(AGAIN);
            }
            dialled => break dialled.map_err(unreachable)?,
        }
    };
    let peer = Peer::of(&stream).map_err(unreachable)?;
    let pid = standing.state.pid;
    if peer.uid != uid || peer.pid.is_some_and(|peer| peer != pid) {
        let why = format!("it is not the agent, process {pid}, that listens there");
        let socket = socket.path().to_owned();
        return Err(ClientError::Local(LocalError::OtherProbe { socket, why }));
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_at_its_whole_address() {
        let check =
            |listen: &str, address: &str| covers(listen.parse().unwrap(), address.parse().unwrap());
        assert!(check("127.0.0.1:80", "127.0.0.1:80"));
        assert!(check("0.0.0.0:80", "127.0.0.2:80"));
        assert!(check("[::]:80", "[::1]:80"));
        assert!(check("[::1]:80", "[::1]:80"));
        assert!(!check("127.0.0.1:80", "127.0.0.2:80"));
        assert!(!check("127.0.0.1:80", "[::1]:80"));
        assert!(!check("0.0.0.0:80", "[::1]:80"));
        assert!(!check("[::1]:80", "127.0.0.1:80"));
    }
}
