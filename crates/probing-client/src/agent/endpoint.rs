//! Where an agent listens, as people write it: `host:8080`, `10.0.0.7:8080`, `[fd00::7]:8080`.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

/// A host, by name or address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
}

/// The text is no `host:port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an agent is named by host and port: node7:8080")]
pub struct NotAnEndpoint;

impl FromStr for Endpoint {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = text.rsplit_once(':').ok_or(NotAnEndpoint)?;
        let port = port.parse().map_err(|_other| NotAnEndpoint)?;
        let host = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']').ok_or(NotAnEndpoint)?,
            None if host.contains(':') => return Err(NotAnEndpoint),
            None => host,
        };
        let is_host = |host: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
            !host.is_empty() && host.bytes().all(fits)
        };
        if port == 0 || !is_host(host) {
            return Err(NotAnEndpoint);
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

impl Endpoint {
    /// Its addresses, by what names it.
    pub(crate) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let found = (self.host.as_str(), self.port).to_socket_addrs()?;
        Ok(found.collect())
    }
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
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(NotAnEndpoint), "{text}");
        }
    }
}
