//! `/health`, `/targets`, `/openapi.json`: about the agent and its machine.

use probing_client::roll;
use probing_proto::agent::{AGENT_PROTOCOL, Health, NodeReport};

use super::json;
use crate::http::Refused;
use crate::life::Agent;
use crate::openapi;
use crate::routes::Asked;

pub(crate) fn health(_: &Agent, _: &Asked) -> Result<Vec<u8>, Refused> {
    json(&Health {
        status: "ok".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: AGENT_PROTOCOL,
    })
}

pub(crate) fn targets(_: &Agent, asked: &Asked) -> Result<Vec<u8>, Refused> {
    let system = rustix::system::uname();
    json(&NodeReport {
        host: system.nodename().to_string_lossy().into_owned(),
        role: asked.role,
        targets: roll(),
    })
}

pub(crate) fn description(_: &Agent, _: &Asked) -> Result<Vec<u8>, Refused> {
    json(&openapi::document())
}
