//! `probing agent`: serves this machine's targets to others.

use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::Context as _;
use probing_agent::{Agent, AgentError, ExitReason, Settings, TlsMode, say_trouble};
use probing_proto::env::{PROBING_ALLOW, PROBING_TLS, PROBING_TOKEN, Variable};

use crate::arguments::AgentArguments;
use crate::exit::{self, Status};
use crate::terminal;

pub(crate) fn run(arguments: &AgentArguments) -> anyhow::Result<Status> {
    let settings = settings(arguments)?;
    if arguments.stdio {
        Agent::for_one(&settings)?.run()?;
        return Ok(exit::OK);
    }
    if settings.wanted {
        // It may be a leader of one already.
        rustix::process::setsid().ok();
    }
    let agent = match Agent::start(&settings) {
        Ok(agent) => agent,
        // Another was quicker, and does what was wanted.
        Err(AgentError::Runs { .. }) if settings.wanted => return Ok(exit::OK),
        Err(error) => {
            if settings.wanted {
                say_trouble(&settings, &error);
            }
            return Err(error.into());
        }
    };
    if let Some(address) = agent.address().filter(|_| !settings.wanted) {
        write!(terminal::stderr(), "{}", greeting(&agent, address))?;
    }
    match agent.run()? {
        ExitReason::Idle if !settings.wanted => {
            writeln!(terminal::stderr(), "idle: no target and no client")?;
        }
        ExitReason::Idle | ExitReason::Signalled => {}
    }
    Ok(exit::OK)
}

fn settings(arguments: &AgentArguments) -> anyhow::Result<Settings> {
    let text = |variable: Variable| {
        variable
            .value()
            .map(|value| value.to_string_lossy().into_owned())
    };
    let tls = match (&arguments.tls, text(PROBING_TLS)) {
        (Some(tls), _) => tls.clone(),
        (None, Some(tls)) => tls.parse().context(PROBING_TLS.name)?,
        (None, None) => TlsMode::Auto,
    };
    let mut allow = arguments.allow.clone();
    if let Some(ranges) = text(PROBING_ALLOW).filter(|_| allow.is_empty()) {
        let ranges: Result<Vec<_>, _> = ranges.split(',').map(Settings::range).collect();
        allow = ranges.context(PROBING_ALLOW.name)?;
    }
    Ok(Settings {
        listen: arguments.listen,
        token_file: arguments.token_file.clone(),
        token: text(PROBING_TOKEN),
        tls,
        allow,
        read_only: arguments.read_only,
        query_time: arguments.query_time,
        query_memory: arguments.query_memory,
        idle: arguments.idle,
        wanted: arguments.wanted,
    })
}

fn greeting(agent: &Agent, address: SocketAddr) -> String {
    let token = agent.token_file();
    let mut text = format!("listening on {address}");
    match agent.fingerprint() {
        Some(fingerprint) => text += &format!(" within TLS\ncertificate {fingerprint}"),
        None => text += " in plain text: for this machine only",
    }
    let port = address.port();
    let host = if address.ip().is_loopback() {
        address.ip().to_string()
    } else {
        "HOST".to_owned()
    };
    text + &format!(
        "\ntokens in {}\naudit log in {}\nuse it with: probing -t {host}:{port} list\n",
        token.display(),
        agent.audit_file().display()
    )
}
