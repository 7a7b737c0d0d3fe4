//! What there is to ask, and what it takes to be heard.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use probing_proto::agent::Role;
use probing_proto::form;
use serde::de::DeserializeOwned;

use crate::answers;
use crate::audit::Actor;
use crate::http::{Conversation, Head, Refused};
use crate::life::Agent;
use crate::tokens::Bearer;

/// One thing to ask.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// What whoever asks must be; nothing where everybody may.
    pub(crate) role: Option<Role>,
    pub(crate) about: &'static str,
    pub(crate) answer: Answer,
}

/// How it is answered.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// By one value.
    Json(fn(&Agent, &Asked) -> Result<Vec<u8>, Refused>),
    /// By one value, or as it comes.
    Rows,
    /// By a conversation with a probe.
    Relay,
}

/// A request of somebody who may make it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    pub(crate) role: Role,
    pub(crate) actor: Actor,
}

/// All of them.
pub(crate) const ROUTES: [Route; 8] = [
    Route {
        method: "GET",
        path: "/health",
        role: None,
        about: "Whether an agent is here; the only thing that needs no token",
        answer: Answer::Json(answers::health),
    },
    Route {
        method: "GET",
        path: "/targets",
        role: Some(Role::Observe),
        about: "The Python processes of this machine that can be looked at",
        answer: Answer::Json(answers::targets),
    },
    Route {
        method: "GET",
        path: "/backtrace",
        role: Some(Role::Observe),
        about: "Where targets are: their stacks, read from outside",
        answer: Answer::Json(answers::backtrace),
    },
    Route {
        method: "POST",
        path: "/query",
        role: Some(Role::Observe),
        about: "Rows by SQL, as JSON or as an Arrow stream",
        answer: Answer::Rows,
    },
    Route {
        method: "GET",
        path: "/samples",
        role: Some(Role::Observe),
        about: "Many readings of the stacks of one process, counted",
        answer: Answer::Json(answers::samples),
    },
    Route {
        method: "POST",
        path: "/eval",
        role: Some(Role::Control),
        about: "Run code in targets",
        answer: Answer::Json(answers::eval),
    },
    Route {
        method: "GET",
        path: "/ws",
        role: Some(Role::Control),
        about: "A WebSocket with the messages of one target's probe: docs/protocol.md",
        answer: Answer::Relay,
    },
    Route {
        method: "GET",
        path: "/openapi.json",
        role: Some(Role::Observe),
        about: "This description",
        answer: Answer::Json(answers::description),
    },
];

/// Answers one request. The conversation comes back when it may go on.
pub(crate) fn serve(
    agent: &Agent,
    mut conversation: Conversation,
    head: &Head,
    from: SocketAddr,
) -> io::Result<Option<Conversation>> {
    let (route, bearer) = match admitted(agent, head, from) {
        Ok(admitted) => admitted,
        Err(refused) => {
            conversation.refuse(&refused)?;
            return Ok(None);
        }
    };
    agent.touch();
    let body = match conversation.body(head)? {
        Ok(body) => body,
        Err(refused) => {
            conversation.refuse(&refused)?;
            return Ok(None);
        }
    };
    let asked = Asked {
        head: head.clone(),
        body,
        role: bearer.as_ref().map_or(Role::Observe, |bearer| bearer.role),
        actor: Actor {
            from: from.to_string(),
            token: bearer.map_or_else(String::new, |bearer| bearer.name),
        },
    };
    match route.answer {
        Answer::Json(answer) => {
            let Some(_turn) = agent.turn() else {
                conversation.refuse(&busy())?;
                return Ok(None);
            };
            match answer(agent, &asked) {
                Ok(json) => Ok(conversation.answer(head, &json)?.then_some(conversation)),
                Err(refused) => {
                    conversation.refuse(&refused)?;
                    Ok(None)
                }
            }
        }
        Answer::Rows => {
            let Some(_turn) = agent.turn() else {
                conversation.refuse(&busy())?;
                return Ok(None);
            };
            answers::rows(agent, conversation, &asked)
        }
        Answer::Relay => {
            answers::relay(agent, conversation, &asked)?;
            Ok(None)
        }
    }
}

/// The route that is meant, when whoever asks may.
fn admitted(
    agent: &Agent,
    head: &Head,
    from: SocketAddr,
) -> Result<(&'static Route, Option<Bearer>), Refused> {
    agent.names.check(head)?;
    let mut routes = ROUTES.iter();
    let route = routes.find(|route| route.path == head.path && route.method == head.method);
    if let Some(route) = route.filter(|route| route.role.is_none()) {
        return Ok((route, None));
    }
    let bearer = bearer(agent, head, from)?;
    let Some(route) = route else {
        return Err(nowhere(head));
    };
    if route.role.is_some_and(|role| bearer.role < role) {
        return Err(Refused::new(403, "this token is for looking only").hint(
            "running code takes the agent's control token, and an agent without --read-only",
        ));
    }
    Ok((route, Some(bearer)))
}

/// Who asks, by the token.
fn bearer(agent: &Agent, head: &Head, from: SocketAddr) -> Result<Bearer, Refused> {
    let now = Instant::now();
    if let Some(left) = agent.door.closed_for(from.ip(), now) {
        let seconds = left.as_secs() + 1;
        return Err(Refused::new(429, "too many wrong tokens from this address")
            .hint(format!("try again in {seconds} s"))
            .field("Retry-After", seconds.to_string()));
    }
    let shown = head
        .only("authorization")?
        .and_then(|shown| shown.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    let Some(shown) = shown else {
        return Err(unauthorized("no token").hint("send it: `Authorization: Bearer TOKEN`"));
    };
    if let Some(bearer) = agent.tokens.bearer(shown.as_bytes()) {
        agent.door.succeeded(from.ip());
        return Ok(bearer);
    }
    thread::sleep(agent.door.failed(from.ip(), now));
    Err(
        unauthorized("this token is none that the agent knows").hint(
            "the agent printed the file that it is in when it started; or it is its PROBING_TOKEN",
        ),
    )
}

fn unauthorized(error: &str) -> Refused {
    Refused::new(401, error).field("WWW-Authenticate", "Bearer")
}

fn nowhere(head: &Head) -> Refused {
    let methods: Vec<&str> = ROUTES
        .iter()
        .filter(|route| route.path == head.path)
        .map(|route| route.method)
        .collect();
    if methods.is_empty() {
        let paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        return Refused::new(404, "there is no such path")
            .hint(format!("there are: {}", paths.join(", ")));
    }
    let methods = methods.join(", ");
    Refused::new(405, format!("not by {}", head.method))
        .hint(format!("by {methods}"))
        .field("Allow", methods)
}

fn busy() -> Refused {
    Refused::new(503, "the agent has more to do than it can").hint("try again")
}

impl Asked {
    /// The body, which must be what it says.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Refused> {
        let kind = self.head.only("content-type")?.unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(Refused::new(415, "a body must be application/json")
                .hint("send it: `Content-Type: application/json`"));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Refused::bad(format!("the body is not understood: {error}")))
    }

    /// What stands behind the `?`.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, Refused> {
        form::from_text(&self.head.query)
            .map_err(|error| Refused::bad(format!("the query is not understood: {error}")))
    }
}
