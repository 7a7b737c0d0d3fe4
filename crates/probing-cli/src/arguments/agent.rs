//! `probing agent`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use probing_agent::{NotSettings, Settings, TlsMode};

use crate::arguments::amounts::{bytes, some_seconds};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing agent                            for this machine, on 127.0.0.1:8080
  probing agent --listen 8080              for others, too: with a token and within TLS
  probing agent --listen 8080 --allow 10.0.0.0/8 --read-only
  PROBING_PORT=8080 python train.py        the program starts it by itself
  probing -t node7:8080 backtrace          from another machine, with PROBING_TOKEN set
  curl -H \"Authorization: Bearer $PROBING_TOKEN\" http://127.0.0.1:8080/targets

Serves all Python processes of this user on this machine on one port: the command's other end, and HTTP for
other programs (docs/remote.md). Nobody comes in without the token, which it makes and keeps in a file that
only this user may read; beyond loopback addresses everything is within TLS, with a certificate that it
makes and that commands remember. Requests are written to an audit log. docs/security.md has the rest.")]
pub(crate) struct AgentArguments {
    /// Where to listen: a port, for all addresses; or an address with its port
    #[arg(long, value_name = "[ADDRESS:]PORT", default_value = "127.0.0.1:8080", value_parser = Settings::listen)]
    pub(crate) listen: SocketAddr,

    /// A file with more tokens of at least 16 characters: one a line, `control` or `observe` in front of it
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// auto: with a certificate of its own, but not on a loopback address; off: on loopback only; or
    /// the PEM files of a certificate and its key [env: `PROBING_TLS`]
    #[arg(long, value_name = "auto|off|CERT,KEY")]
    pub(crate) tls: Option<TlsMode>,

    /// Who may connect: a range of addresses; may be given several times [env: `PROBING_ALLOW`]
    #[arg(long, value_name = "RANGE", value_parser = range)]
    pub(crate) allow: Vec<ipnet::IpNet>,

    /// Let nobody do more than look, whatever the token
    #[arg(long)]
    pub(crate) read_only: bool,

    /// How long a query by SQL may take
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = some_seconds)]
    pub(crate) query_time: Duration,

    /// How much memory a query by SQL may take; without, a quarter of what is free, and 4 GB at most
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) query_memory: Option<u64>,

    /// End when there was no target and no client for so long
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = some_seconds)]
    pub(crate) idle: Duration,

    /// Serve one conversation over input and output, for who has started it: what `-t ssh://` does
    #[arg(long, hide = true, conflicts_with_all = ["listen", "wanted"])]
    pub(crate) stdio: bool,

    /// Started by a program's `PROBING_PORT`: says in the private folder what goes wrong
    #[arg(long, hide = true)]
    pub(crate) wanted: bool,
}

fn range(text: &str) -> Result<ipnet::IpNet, NotSettings> {
    Settings::range(text)
}
