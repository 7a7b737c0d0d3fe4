//! The routes: paths, their handlers, and the token that each needs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};
use probing_proto::agent::{PROOF_SCHEME, Role};
use probing_proto::process::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::agent::Agent;
use crate::handlers::{self, BlockingHandler};
use crate::http::refusal::{CAUTION, Refused};
use crate::http::request::{
    Caller, ClientConnection, JsonBody, MAX_BODY_BYTES, QueryParams, Visitor, check_length, only,
};
use crate::security::audit_log::Actor;
use crate::security::rate_limit::Verdict;
use crate::security::tokens::Bearer;

/// One thing to ask.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// What whoever asks must be; nothing where everybody may.
    pub(crate) role: Option<Role>,
    pub(crate) about: &'static str,
    answer: Answering,
}

/// How a route is answered, and whether that leaves a line in the audit log.
enum Answering {
    /// Says nothing of any process.
    Open(fn() -> MethodRouter<Arc<Agent>>),
    /// Runs something in a process or discloses something of one: no answer leaves without a line of this action, whatever
    /// the code that answers does. It may write better lines itself, before.
    Audited {
        action: &'static str,
        answer: fn(&'static str) -> MethodRouter<Arc<Agent>>,
    },
}

impl Answering {
    fn router(&self) -> MethodRouter<Arc<Agent>> {
        match self {
            Self::Open(answer) => answer(),
            Self::Audited { action, answer } => answer(action),
        }
    }

    fn action(&self) -> Option<&'static str> {
        match self {
            Self::Open(_) => None,
            Self::Audited { action, .. } => Some(action),
        }
    }
}

/// All of them.
pub(crate) const ROUTES: [Route; 8] = [
    Route {
        method: "GET",
        path: "/health",
        role: None,
        about: "Whether an agent is here; the only request without a token",
        answer: Answering::Open(|| get(handlers::health)),
    },
    Route {
        method: "GET",
        path: "/targets",
        role: Some(Role::Observe),
        about: "The Python processes of this machine",
        answer: Answering::Audited {
            action: "targets",
            answer: |action| by_words(action, handlers::targets),
        },
    },
    Route {
        method: "GET",
        path: "/backtrace",
        role: Some(Role::Observe),
        about: "Stacks of targets, read from outside",
        answer: Answering::Audited {
            action: "backtrace",
            answer: |action| by_words(action, handlers::backtrace),
        },
    },
    Route {
        method: "POST",
        path: "/query",
        role: Some(Role::Observe),
        about: "Rows by SQL, as JSON or as an Arrow stream",
        answer: Answering::Audited {
            action: "query",
            answer: |_| post(handlers::rows),
        },
    },
    Route {
        method: "GET",
        path: "/samples",
        role: Some(Role::Observe),
        about: "Many readings of the stacks of one process, counted",
        answer: Answering::Audited {
            action: "samples",
            answer: |action| by_words(action, handlers::samples),
        },
    },
    Route {
        method: "POST",
        path: "/eval",
        role: Some(Role::Control),
        about: "Run code in targets",
        answer: Answering::Audited {
            action: "eval",
            answer: |_| by_json(handlers::eval),
        },
    },
    Route {
        method: "GET",
        path: "/ws",
        role: Some(Role::Control),
        about: "A WebSocket with the messages of one target's probe: docs/protocol.md",
        answer: Answering::Audited {
            action: "connect",
            answer: |_| get(handlers::relay),
        },
    },
    Route {
        method: "GET",
        path: "/openapi.json",
        role: Some(Role::Observe),
        about: "This description",
        answer: Answering::Open(|| get(handlers::description)),
    },
];

/// All of it, behind who is let in.
pub(crate) fn router(agent: &Arc<Agent>) -> Router {
    let mut router = Router::new();
    for route in &ROUTES {
        router = router.route(route.path, route.answer.router());
    }
    router
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(agent), admit))
        .with_state(Arc::clone(agent))
}

/// Answers what stands behind the `?`, when that is written down.
fn by_words<T>(action: &'static str, answer: BlockingHandler<T>) -> MethodRouter<Arc<Agent>>
where
    T: DeserializeOwned + Serialize + Send + 'static,
{
    get(
        move |State(agent),
              Extension(caller): Extension<Caller>,
              QueryParams(asked): QueryParams<T>| {
            handlers::in_turn(agent, caller, move |agent, caller| {
                note_asked(agent, caller, action, &asked)?;
                answer(agent, caller, asked)
            })
        },
    )
}

/// Writes down a request as it was understood, and the process that it names.
fn note_asked(
    agent: &Agent,
    caller: &Caller,
    action: &str,
    asked: &impl Serialize,
) -> Result<(), Refused> {
    let asked = serde_json::to_value(asked).unwrap_or_default();
    let pid = asked.get("pid").and_then(serde_json::Value::as_u64);
    let pid = pid.and_then(|pid| u32::try_from(pid).ok()).map(Pid);
    agent.note(&caller.actor, action, pid, Some(&asked.to_string()))
}

/// Answers what stands in the body.
fn by_json<T>(answer: BlockingHandler<T>) -> MethodRouter<Arc<Agent>>
where
    T: DeserializeOwned + Send + 'static,
{
    post(
        move |State(agent), Extension(caller): Extension<Caller>, JsonBody(asked): JsonBody<T>| {
            handlers::in_turn(agent, caller, move |agent, caller| {
                answer(agent, caller, asked)
            })
        },
    )
}

/// The answer to who may ask, and what every answer says.
async fn admit(
    State(agent): State<Arc<Agent>>,
    Extension(guest): Extension<ClientConnection>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let admitted = admitted(&agent, &parts, &guest).await;
    let mut response = match admitted {
        Ok((caller, action)) => {
            agent.touch();
            parts.extensions.insert(caller.clone());
            let asked = parts.uri.query().map(str::to_owned);
            let response = next.run(Request::from_parts(parts, body)).await;
            let is_answer = response.status().is_success() || response.status().as_u16() == 101;
            let missing = action.filter(|_| is_answer && !caller.actor.is_noted());
            let noted = missing
                .map(|action| agent.note(&caller.actor, action, None, asked.as_deref()))
                .transpose();
            noted.map_or_else(Refused::into_response, |_| response)
        }
        Err(refused) => refused.into_response(),
    };
    response.headers_mut().extend(CAUTION);
    response
}

/// Who asks for a route that there is, when it may; and what that is called in the audit log.
async fn admitted(
    agent: &Agent,
    parts: &Parts,
    guest: &ClientConnection,
) -> Result<(Caller, Option<&'static str>), Refused> {
    let Parts {
        method,
        uri,
        headers,
        ..
    } = parts;
    if uri.authority().is_some() || !uri.path().starts_with('/') {
        return Err(Refused::bad("a request names a path"));
    }
    if matches!(guest.visitor, Visitor::Network(_)) {
        agent.names.check(headers)?;
    }
    let mut routes = ROUTES.iter();
    // As it stands: nothing is decoded.
    let route = routes.find(|route| route.path == uri.path() && route.method == method.as_str());
    let bearer = match route {
        Some(Route { role: None, .. }) => None,
        _ => Some(bearer(agent, headers, guest).await?),
    };
    let Some(route) = route else {
        return Err(nowhere(method.as_str(), uri.path()));
    };
    let role = bearer.as_ref().map_or(Role::Observe, |bearer| bearer.role);
    if route.role.is_some_and(|needed| role < needed) {
        let words = "this token is for observers only";
        return Err(Refused::new(StatusCode::FORBIDDEN, words).hint(
            "running code needs the agent's control token, and an agent without --read-only",
        ));
    }
    check_length(headers)?;
    if bearer.is_some() {
        guest.entrance.admit(role)?;
    }
    let token = bearer.map_or_else(String::new, |bearer| bearer.name);
    let actor = Actor::new(guest.visitor.to_string(), token);
    let caller = Caller {
        role,
        actor,
        requester: Arc::default(),
    };
    Ok((caller, route.answer.action()))
}

/// Who asks, by the token; or by the kernel's word, for the agent's own user.
async fn bearer(
    agent: &Agent,
    headers: &HeaderMap,
    guest: &ClientConnection,
) -> Result<Bearer, Refused> {
    let shown = only(headers, header::AUTHORIZATION)?
        .and_then(|shown| shown.split_once(' '))
        .map(|(scheme, secret)| (scheme, secret.trim()));
    let found = match (shown, guest.visitor) {
        (Some((scheme, token)), _) if scheme.eq_ignore_ascii_case("bearer") => {
            agent.tokens.bearer(token.as_bytes())
        }
        (Some((scheme, digits)), _) if scheme.eq_ignore_ascii_case(PROOF_SCHEME) => {
            let Some(binding) = &guest.binding else {
                return Err(Refused::bad(
                    "a proof of a token is for connections within TLS",
                ));
            };
            proof_in(digits).and_then(|proof| agent.tokens.prover(&proof, binding))
        }
        (_, Visitor::Local { .. } | Visitor::Starter) => Some(Bearer {
            role: agent.own_role(),
            name: "the user itself".to_owned(),
        }),
        (_, Visitor::Network(_)) => {
            return Err(unauthorized("no token").hint("send it: `Authorization: Bearer TOKEN`"));
        }
    };
    match (found, guest.visitor) {
        // Whatever else came from its address.
        (Some(bearer), _) => Ok(bearer),
        (None, Visitor::Network(from)) => Err(wrong(agent, from).await),
        (None, _) => Err(unknown()),
    }
}

/// What is said to a wrong token, and when.
async fn wrong(agent: &Agent, from: SocketAddr) -> Refused {
    let Verdict { delay, come_back } = agent.door.failed(from.ip(), Instant::now());
    sleep(delay).await;
    let Some(left) = come_back else {
        return unknown();
    };
    let seconds = left.as_secs();
    let words = "too many wrong tokens from this address";
    Refused::new(StatusCode::TOO_MANY_REQUESTS, words)
        .hint(format!(
            "try again in {seconds} s; the right token is accepted at once"
        ))
        .field(header::RETRY_AFTER, seconds.to_string())
}

fn unknown() -> Refused {
    unauthorized("the agent does not know this token").hint(
        "the agent prints the file of its token when it starts; or the token is its PROBING_TOKEN",
    )
}

/// 64 hexadecimal digits.
fn proof_in(digits: &str) -> Option<[u8; 32]> {
    let mut proof = [0; 32];
    if digits.len() != 2 * proof.len() || !digits.is_ascii() {
        return None;
    }
    for (byte, pair) in proof.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some(proof)
}

fn unauthorized(error: &str) -> Refused {
    Refused::new(StatusCode::UNAUTHORIZED, error).field(header::WWW_AUTHENTICATE, "Bearer")
}

fn nowhere(method: &str, path: &str) -> Refused {
    let methods: Vec<&str> = ROUTES
        .iter()
        .filter(|route| route.path == path)
        .map(|route| route.method)
        .collect();
    if methods.is_empty() {
        let paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        return Refused::new(StatusCode::NOT_FOUND, "no such path")
            .hint(format!("there are: {}", paths.join(", ")));
    }
    let methods = methods.join(", ");
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, format!("not by {method}"))
        .hint(format!("by {methods}"))
        .field(header::ALLOW, methods)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_what_is_no_process_is_audited() {
        let open: Vec<&str> = ROUTES
            .iter()
            .filter(|route| route.answer.action().is_none())
            .map(|route| route.path)
            .collect();
        assert_eq!(open, ["/health", "/openapi.json"]);
    }

    #[test]
    fn a_proof_is_sixty_four_digits() {
        assert_eq!(proof_in(&"0a".repeat(32)), Some([10; 32]));
        for wrong in [
            "",
            "0a",
            &"0a".repeat(33),
            &"0g".repeat(32),
            &"é".repeat(32),
        ] {
            assert_eq!(proof_in(wrong), None, "{wrong}");
        }
        assert_eq!(proof_in(&"+1".repeat(32)), None);
    }
}
