//! Where an agent is met, as people write it: `host:8080`, `[fd00::7]:8080`, `ssh://user@host`.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

/// Where an agent is met.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// It listens on a port of a host, which is a name or an address without the brackets of IPv6.
    Port { host: String, port: u16 },
    /// It is started there over SSH, for one conversation.
    Ssh {
        /// `user@host`, as SSH takes it.
        destination: String,
        port: Option<u16>,
    },
}

/// The text is no `host:port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an agent is named by host and port: node7:8080; or by a login: ssh://user@node7")]
pub struct NotAnEndpoint;

const SSH: &str = "ssh://";

impl FromStr for Endpoint {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(login) = text.strip_prefix(SSH) {
            return login_in(login);
        }
        let (host, port) = text.rsplit_once(':').ok_or(NotAnEndpoint)?;
        let host = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']').ok_or(NotAnEndpoint)?,
            None if host.contains(':') => return Err(NotAnEndpoint),
            None => host,
        };
        let is_host = !host.is_empty() && host.bytes().all(|byte| is_of_name(byte, b"-._:%"));
        match port_in(port) {
            Some(port) if is_host => Ok(Self::Port {
                host: host.to_owned(),
                port,
            }),
            _ => Err(NotAnEndpoint),
        }
    }
}

fn is_of_name(byte: u8, more: &[u8]) -> bool {
    byte.is_ascii_alphanumeric() || more.contains(&byte)
}

fn port_in(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

/// `user@host:22`. Nothing that SSH, or a shell, would take for something else.
fn login_in(text: &str) -> Result<Endpoint, NotAnEndpoint> {
    let (destination, port) = match text.rsplit_once(':') {
        Some((destination, port)) => (destination, Some(port_in(port).ok_or(NotAnEndpoint)?)),
        None => (text, None),
    };
    let is_login = destination.bytes().all(|byte| is_of_name(byte, b"-._@"))
        && destination.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && !destination.ends_with('@');
    if !is_login {
        return Err(NotAnEndpoint);
    }
    Ok(Endpoint::Ssh {
        destination: destination.to_owned(),
        port,
    })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // `unix:80` is a socket.
            Self::Port { host, port } if host.contains(':') || host == "unix" => {
                write!(f, "[{host}]:{port}")
            }
            Self::Port { host, port } => write!(f, "{host}:{port}"),
            Self::Ssh {
                destination,
                port: Some(port),
            } => write!(f, "{SSH}{destination}:{port}"),
            Self::Ssh {
                destination,
                port: None,
            } => write!(f, "{SSH}{destination}"),
        }
    }
}

/// The addresses of a host.
pub(crate) fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        for text in [
            "host:8080",
            "10.0.0.7:1",
            "[fd00::7]:8080",
            "node-7.cluster.local:65535",
            "ssh://node7",
            "ssh://me@node-7.cluster.local:2222",
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), text);
        }
        for text in [
            "",
            "host",
            "host:",
            ":8080",
            "host:0",
            "host:65536",
            "fd00::7:8080",
            "[fd00::7:8080",
            "a b:80",
            "a/b:80",
            "a\r\nb:80",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://a b",
            "ssh://me@",
            "ssh://me@node7:0",
            "ssh://node7;x",
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(NotAnEndpoint), "{text}");
        }
    }
}
