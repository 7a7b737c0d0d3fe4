//! What there is to ask, and what it takes to be heard.

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
use probing_proto::agent::Role;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::answers::{self, Answer};
use crate::audit::Actor;
use crate::life::Agent;
use crate::refusal::{CAUTION, Refused};
use crate::request::{Caller, Guest, MOST_BODY, Told, Words, check_length, only};
use crate::tokens::Bearer;

/// One thing to ask.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// What whoever asks must be; nothing where everybody may.
    pub(crate) role: Option<Role>,
    pub(crate) about: &'static str,
    answer: fn() -> MethodRouter<Arc<Agent>>,
}

/// All of them.
pub(crate) const ROUTES: [Route; 8] = [
    Route {
        method: "GET",
        path: "/health",
        role: None,
        about: "Whether an agent is here; the only thing that needs no token",
        answer: || get(answers::health),
    },
    Route {
        method: "GET",
        path: "/targets",
        role: Some(Role::Observe),
        about: "The Python processes of this machine that can be looked at",
        answer: || by_words(answers::targets),
    },
    Route {
        method: "GET",
        path: "/backtrace",
        role: Some(Role::Observe),
        about: "Where targets are: their stacks, read from outside",
        answer: || by_words(answers::backtrace),
    },
    Route {
        method: "POST",
        path: "/query",
        role: Some(Role::Observe),
        about: "Rows by SQL, as JSON or as an Arrow stream",
        answer: || post(answers::rows),
    },
    Route {
        method: "GET",
        path: "/samples",
        role: Some(Role::Observe),
        about: "Many readings of the stacks of one process, counted",
        answer: || by_words(answers::samples),
    },
    Route {
        method: "POST",
        path: "/eval",
        role: Some(Role::Control),
        about: "Run code in targets",
        answer: || by_json(answers::eval),
    },
    Route {
        method: "GET",
        path: "/ws",
        role: Some(Role::Control),
        about: "A WebSocket with the messages of one target's probe: docs/protocol.md",
        answer: || get(answers::relay),
    },
    Route {
        method: "GET",
        path: "/openapi.json",
        role: Some(Role::Observe),
        about: "This description",
        answer: || get(answers::description),
    },
];

/// All of it, behind who is let in.
pub(crate) fn router(agent: &Arc<Agent>) -> Router {
    let mut router = Router::new();
    for route in &ROUTES {
        router = router.route(route.path, (route.answer)());
    }
    router
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .layer(middleware::from_fn_with_state(Arc::clone(agent), admit))
        .with_state(Arc::clone(agent))
}

/// Answers what stands behind the `?`.
fn by_words<T>(answer: Answer<T>) -> MethodRouter<Arc<Agent>>
where
    T: DeserializeOwned + Send + 'static,
{
    get(
        move |State(agent), Extension(caller), Words(asked): Words<T>| {
            answers::in_turn(agent, move |agent| answer(agent, &caller, asked))
        },
    )
}

/// Answers what stands in the body.
fn by_json<T>(answer: Answer<T>) -> MethodRouter<Arc<Agent>>
where
    T: DeserializeOwned + Send + 'static,
{
    post(
        move |State(agent), Extension(caller), Told(asked): Told<T>| {
            answers::in_turn(agent, move |agent| answer(agent, &caller, asked))
        },
    )
}

/// The answer to who may ask, and what every answer says.
async fn admit(
    State(agent): State<Arc<Agent>>,
    Extension(guest): Extension<Guest>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let mut response = match admitted(&agent, &parts, guest.from).await {
        Ok(caller) => {
            agent.touch();
            parts.extensions.insert(caller);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(refused) => refused.into_response(),
    };
    response.headers_mut().extend(CAUTION);
    response
}

/// Who asks for a route that there is, when it may.
async fn admitted(
    agent: &Agent,
    parts: &Parts,
    from: Option<SocketAddr>,
) -> Result<Caller, Refused> {
    let Parts {
        method,
        uri,
        headers,
        ..
    } = parts;
    if uri.authority().is_some() || !uri.path().starts_with('/') {
        return Err(Refused::bad("a request names a path"));
    }
    if from.is_some() {
        agent.names.check(headers)?;
    }
    let mut routes = ROUTES.iter();
    // As it stands: nothing is decoded.
    let route = routes.find(|route| route.path == uri.path() && route.method == method.as_str());
    let bearer = match (route, from, agent.starter()) {
        (Some(Route { role: None, .. }), ..) => None,
        (_, Some(from), _) => Some(bearer(agent, headers, from).await?),
        // It has the input and output of its process.
        (_, None, Some(role)) => Some(Bearer {
            role,
            name: "the user itself".to_owned(),
        }),
        (_, None, None) => return Err(unauthorized("no token")),
    };
    let Some(route) = route else {
        return Err(nowhere(method.as_str(), uri.path()));
    };
    let role = bearer.as_ref().map_or(Role::Observe, |bearer| bearer.role);
    if route.role.is_some_and(|needed| role < needed) {
        let words = "this token is for looking only";
        return Err(Refused::new(StatusCode::FORBIDDEN, words).hint(
            "running code takes the agent's control token, and an agent without --read-only",
        ));
    }
    check_length(headers)?;
    Ok(Caller {
        role,
        actor: Actor {
            from: from.map_or_else(|| "standard input".to_owned(), |from| from.to_string()),
            token: bearer.map_or_else(String::new, |bearer| bearer.name),
        },
    })
}

/// Who asks, by the token.
async fn bearer(agent: &Agent, headers: &HeaderMap, from: SocketAddr) -> Result<Bearer, Refused> {
    let now = Instant::now();
    if let Some(left) = agent.door.closed_for(from.ip(), now) {
        let seconds = left.as_secs() + 1;
        let words = "too many wrong tokens from this address";
        return Err(Refused::new(StatusCode::TOO_MANY_REQUESTS, words)
            .hint(format!("try again in {seconds} s"))
            .field(header::RETRY_AFTER, seconds.to_string()));
    }
    let shown = only(headers, header::AUTHORIZATION)?
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
    sleep(agent.door.failed(from.ip(), now)).await;
    Err(
        unauthorized("this token is none that the agent knows").hint(
            "the agent printed the file that it is in when it started; or it is its PROBING_TOKEN",
        ),
    )
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
        return Refused::new(StatusCode::NOT_FOUND, "there is no such path")
            .hint(format!("there are: {}", paths.join(", ")));
    }
    let methods = methods.join(", ");
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, format!("not by {method}"))
        .hint(format!("by {methods}"))
        .field(header::ALLOW, methods)
}
