//! Arguments of `probing agent`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use probing_agent::{NotSettings, Settings, TlsMode};

use crate::arguments::amounts::{bytes, some_seconds};

const LISTENING: &str = "Listening";
const ACCESS: &str = "Access";
const LIMITS: &str = "Limits";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing agent                            serve this machine only, on 127.0.0.1:8080
  probing agent --listen 8080              also serve other machines, with a token and TLS
  probing agent --listen 8080 --allow 10.0.0.0/8 --read-only
  PROBING_PORT=8080 python train.py        the program starts the agent
  probing -t node7:8080 backtrace          use it from another machine, with PROBING_TOKEN set
  curl -H \"Authorization: Bearer $PROBING_TOKEN\" http://127.0.0.1:8080/targets

The agent serves all Python processes of this user on one port, to `probing` and over HTTP
(docs/remote.md). Every request needs the token. The agent creates the token in a file that only
this user can read, and a certificate that clients remember. Each line of --token-file is `control
TOKEN` or `observe TOKEN`. --tls auto (the default) uses TLS except on loopback addresses; --tls off
is possible there only. Requests are written to an audit log. docs/security.md is the threat model.")]
pub(crate) struct AgentArguments {
    /// Listen on this port or address
    #[arg(long, value_name = "[ADDRESS:]PORT", default_value = "127.0.0.1:8080", value_parser = Settings::listen, help_heading = LISTENING)]
    pub(crate) listen: SocketAddr,

    /// Also accept the tokens in FILE, one per line
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    pub(crate) token_file: Option<PathBuf>,

    #[arg(
        long,
        value_name = "auto|off|CERT,KEY",
        help_heading = ACCESS,
        help = "Set the mode of TLS, or its PEM files [env: PROBING_TLS]"
    )]
    pub(crate) tls: Option<TlsMode>,

    #[arg(
        long,
        value_name = "RANGE",
        value_parser = range,
        help_heading = ACCESS,
        help = "Accept this range of addresses only; repeatable [env: PROBING_ALLOW]"
    )]
    pub(crate) allow: Vec<ipnet::IpNet>,

    /// Refuse to run code in targets or to change them
    #[arg(long, help_heading = ACCESS)]
    pub(crate) read_only: bool,

    /// End an SQL query after TIME
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = some_seconds, help_heading = LIMITS)]
    pub(crate) query_time: Duration,

    /// Limit the memory of an SQL query [default: 1/4 of free, at most 4G]
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = LIMITS)]
    pub(crate) query_memory: Option<u64>,

    /// Exit after TIME without a target and a client
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = some_seconds, help_heading = LIMITS)]
    pub(crate) idle: Duration,

    /// Serve one connection over standard input and output, as `-t ssh://` asks
    #[arg(long, hide = true, conflicts_with_all = ["listen", "wanted"])]
    pub(crate) stdio: bool,

    /// Report failures in the private folder, as for a program with `PROBING_PORT`
    #[arg(long, hide = true)]
    pub(crate) wanted: bool,
}

fn range(text: &str) -> Result<ipnet::IpNet, NotSettings> {
    Settings::range(text)
}
