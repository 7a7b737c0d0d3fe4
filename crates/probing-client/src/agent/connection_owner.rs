//! Who has accepted a TCP connection on this machine, by the kernel's table of connections.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// For whoever listens to accept a connection that the kernel has made.
const ACCEPT: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(5);

/// The uid of the process that has accepted this connection at its other end, which is on a loopback address. None when nobody
/// has in time: until then the kernel shows the connection as root's.
pub(crate) fn accepted_by(tcp: &TcpStream) -> io::Result<Option<u32>> {
    let (near, far) = (tcp.local_addr()?, tcp.peer_addr()?);
    let until = Instant::now() + ACCEPT;
    loop {
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            // Where there is no IPv6, there is no second table.
            let text = fs::read_to_string(table).unwrap_or_default();
            if let Some(uid) = owner_in(&text, far, near) {
                return Ok(Some(uid));
            }
        }
        if Instant::now() > until {
            return Ok(None);
        }
        thread::sleep(INTERVAL);
    }
}

/// The owner of the connection from `local` to `remote`, when a process has it.
fn owner_in(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, here, there, _, _, _, _, uid, _, inode, ..] = words.as_slice() else {
            return None;
        };
        let is_it = same(here, local) && same(there, remote) && *inode != "0";
        is_it.then(|| uid.parse().ok()).flatten()
    })
}

fn same(text: &str, address: SocketAddr) -> bool {
    let canonical = |address: IpAddr| address.to_canonical();
    parsed(text).is_some_and(|(ip, port)| {
        canonical(ip) == canonical(address.ip()) && port == address.port()
    })
}

/// `0100007F:1F90`: words of 32 bits in the machine's order of bytes, and the port.
fn parsed(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = address.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match address.len() {
        8 => Some((IpAddr::from(word(0)?), port)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            let bytes: [u8; 16] = words.try_into().ok()?;
            Some((IpAddr::V6(Ipv6Addr::from(bytes)), port))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_has_an_owner_once_it_is_accepted() {
        for address in ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let accepted = listener.accept().unwrap();
            let uid = rustix::process::geteuid().as_raw();
            assert_eq!(accepted_by(&tcp).unwrap(), Some(uid), "{address}");
            drop(accepted);
        }
    }

    #[test]
    fn a_connection_that_nobody_has_accepted_has_no_owner() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0\n";
        let (local, remote) = ("127.0.0.1:8080", "127.0.0.1:49153");
        let owner = |text: &str| owner_in(text, local.parse().unwrap(), remote.parse().unwrap());
        assert_eq!(owner(table), None);
        let accepted = table.replace("0        0 0 1 0", "1000        0 4711 1 0");
        assert_eq!(owner(&accepted), Some(1000));
        assert_eq!(owner(&accepted.replace("1F90", "1F91")), None);
    }
}
