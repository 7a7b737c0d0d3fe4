//! The settings of an agent.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;

/// All of it.
#[derive(Debug, Clone)]
pub struct Settings {
    pub listen: SocketAddr,
    /// A file of tokens, beside those of the private folder.
    pub token_file: Option<PathBuf>,
    /// A token that may do everything, beside those.
    pub token: Option<String>,
    pub tls: TlsMode,
    /// Who may connect; all, when empty.
    pub allow: Vec<IpNet>,
    /// Whether nobody may do more than look.
    pub read_only: bool,
    /// What a query may take; of memory, without it, a part of what is free.
    pub query_time: Duration,
    pub query_memory: Option<u64>,
    /// Time without a target and a client after which it ends.
    pub idle: Duration,
    /// Whether a program asked for it, by `PROBING_PORT`.
    pub wanted: bool,
}

/// Whether what is said can be read on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsMode {
    /// With a certificate of its own, but not on a loopback address.
    Auto,
    Off,
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
}

/// The text is none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSettings {
    #[error("TLS is auto, off, or two files: CERTIFICATE,KEY")]
    Tls,
    #[error("an agent listens on a port (8080) or an address (127.0.0.1:8080, [::]:8080)")]
    Listen,
    #[error(
        "a range of addresses is written 10.0.0.0/8 or fd00::/8, a single one without the slash"
    )]
    Range,
}

impl FromStr for TlsMode {
    type Err = NotSettings;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.split_once(',')) {
            ("auto", _) => Ok(Self::Auto),
            ("off", _) => Ok(Self::Off),
            (_, Some((certificate, key))) if !certificate.is_empty() && !key.is_empty() => {
                Ok(Self::Files {
                    certificate: certificate.into(),
                    key: key.into(),
                })
            }
            _ => Err(NotSettings::Tls),
        }
    }
}

impl Settings {
    /// `8080` is that port on all addresses: what `PROBING_PORT` means.
    pub fn listen(text: &str) -> Result<SocketAddr, NotSettings> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok((IpAddr::V4(Ipv4Addr::UNSPECIFIED), port).into());
        }
        let text = text.replace("localhost:", "127.0.0.1:");
        text.parse().map_err(|_other| NotSettings::Listen)
    }

    /// `10.0.0.0/8` or `10.0.0.7`
    pub fn range(text: &str) -> Result<IpNet, NotSettings> {
        let text = text.trim();
        let address = text.parse::<IpAddr>().map(IpNet::from);
        let range = address.or_else(|_other| text.parse());
        range.map_err(|_other: ipnet::AddrParseError| NotSettings::Range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_for_all_addresses() {
        let check = |text: &str, address: &str| {
            assert_eq!(Settings::listen(text).unwrap().to_string(), address);
        };
        check("8080", "0.0.0.0:8080");
        check("127.0.0.1:0", "127.0.0.1:0");
        check("localhost:8080", "127.0.0.1:8080");
        check("[::]:8080", "[::]:8080");
        for wrong in ["", "x", "70000", "host:80", "127.0.0.1", "-1"] {
            assert_eq!(Settings::listen(wrong), Err(NotSettings::Listen), "{wrong}");
        }
    }

    #[test]
    fn tls_is_a_word_or_two_files() {
        assert_eq!("auto".parse(), Ok(TlsMode::Auto));
        assert_eq!("off".parse(), Ok(TlsMode::Off));
        let files = TlsMode::Files {
            certificate: "a.pem".into(),
            key: "b.pem".into(),
        };
        assert_eq!("a.pem,b.pem".parse(), Ok(files));
        for wrong in ["", "on", "a.pem", "a.pem,", ",b.pem"] {
            assert_eq!(wrong.parse::<TlsMode>(), Err(NotSettings::Tls), "{wrong}");
        }
    }

    #[test]
    fn a_range_may_be_one_address() {
        assert_eq!(
            Settings::range("10.0.0.7").unwrap().to_string(),
            "10.0.0.7/32"
        );
        assert_eq!(
            Settings::range(" fd00::/8").unwrap().to_string(),
            "fd00::/8"
        );
        assert_eq!(Settings::range("10.0.0.0/33"), Err(NotSettings::Range));
    }
}
