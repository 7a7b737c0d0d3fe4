//! `/ws`: a conversation with the probe of one target, whose every action is written down.

use std::io;

use probing_client::{
    AttachOptions, ClientError, Entry, Judge, Reached, Relay, Target, is_offered,
};
use probing_proto::agent::{ATTACHED_HEADER, AttachedByAgent, RefusalKind, RelayRequest};
use probing_proto::message::{Call, Event, Failure, Message, Request};
use probing_proto::process::Pid;
use probing_proto::wire::{self, Frame, MAX_ANSWER};
use tungstenite::handshake::derive_accept_key;

use crate::audit::Actor;
use crate::choice;
use crate::http::{Conversation, Refused};
use crate::life::Agent;
use crate::routes::Asked;

pub(crate) fn relay(
    agent: &Agent,
    mut conversation: Conversation,
    asked: &Asked,
) -> io::Result<()> {
    let opened = key(asked).and_then(|key| Ok((key, reach(agent, asked)?)));
    let (key, (pid, reached)) = match opened {
        Ok(opened) => opened,
        Err(refused) => return conversation.refuse(&refused),
    };
    let mut fields = vec![
        ("Connection", "Upgrade".to_owned()),
        ("Upgrade", "websocket".to_owned()),
        ("Sec-WebSocket-Accept", derive_accept_key(key.as_bytes())),
    ];
    if let Some(report) = &reached.attached {
        let attached = serde_json::to_string(&AttachedByAgent {
            strategy: report.strategy.to_string(),
            python: report.python,
            paused_seconds: report.paused.as_secs_f64(),
            took_seconds: report.took.as_secs_f64(),
        })?;
        fields.push((ATTACHED_HEADER, attached));
    }
    let (hello, socket, rest) = reached.probe.into_socket();
    let event = Event::Hello(hello);
    let mut said =
        wire::encode(&Message { id: None, event }, &[], MAX_ANSWER).map_err(io::Error::other)?;
    said.extend(rest);
    let (stream, ahead) = conversation.upgrade(&fields)?;
    let mut clerk = Clerk {
        agent,
        actor: &asked.actor,
        pid,
    };
    Relay::to_probe(stream, ahead, socket, &said).run(&mut clerk)
}

/// What the client proves with that it speaks WebSocket.
fn key(asked: &Asked) -> Result<String, Refused> {
    let head = &asked.head;
    let says = |name: &str, word: &str| {
        let value = head.field(name).unwrap_or_default();
        value
            .split(',')
            .any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    let key = head.only("sec-websocket-key")?;
    let is_asked = says("connection", "upgrade") && says("upgrade", "websocket");
    match key {
        Some(key) if is_asked && says("sec-websocket-version", "13") && !key.is_empty() => {
            Ok(key.to_owned())
        }
        _ => Err(Refused::bad("this path speaks WebSocket, version 13")
            .field("Sec-WebSocket-Version", "13")),
    }
}

fn reach(agent: &Agent, asked: &Asked) -> Result<(Pid, Reached), Refused> {
    let RelayRequest { pid, attach } = asked.query()?;
    if !is_offered(pid) {
        return Err(Refused::new(404, format!("no such target: {pid}"))
            .hint("`GET /targets` shows them")
            .kind(RefusalKind::Ended));
    }
    let target = Target::Local(pid);
    let reached = match target.connect(&Entry::Forbidden) {
        Err(ClientError::NoProbe { .. }) if attach => {
            agent.note(&asked.actor, "attach", pid, None)?;
            target.connect(&Entry::Attach(AttachOptions::default()))
        }
        reached => reached,
    };
    Ok((pid, reached.map_err(|error| choice::refused(&error))?))
}

/// Writes down what is asked of the probe.
struct Clerk<'a> {
    agent: &'a Agent,
    actor: &'a Actor,
    pid: Pid,
}

impl Judge for Clerk<'_> {
    fn check(&mut self, message: &Frame) -> Result<(), Failure> {
        let request: Request = message
            .message()
            .map_err(|error| Failure::new(error.to_string()))?;
        let (action, code) = match &request.call {
            Call::Eval(eval) => ("eval", Some(eval.code.as_str())),
            Call::Detach => ("detach", None),
            _ => return Ok(()),
        };
        self.agent.touch();
        let noted = self.agent.note(self.actor, action, self.pid, code);
        noted.map_err(|refused| refused.refusal.failure)
    }
}
