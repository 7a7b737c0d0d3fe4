//! The description of the requests for machines: `OpenAPI` 3.1, made from the routes.

use probing_proto::agent::Role;
use serde_json::{Map, Value, json};

use crate::http::request::MAX_BODY_BYTES;
use crate::http::routes::{ROUTES, Route};

/// All of it.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method.to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Probing agent",
            "version": env!("CARGO_PKG_VERSION"),
            "description": format!(
                "The Python processes of one machine. Bodies are JSON of at most {MAX_BODY_BYTES} bytes. \
                 Every refusal is JSON with an error and a hint."
            ),
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas(),
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "summary": route.about,
        "operationId": route.path.trim_start_matches('/').replace('.', "_"),
        "responses": responses(route),
    });
    if route.role.is_none() {
        operation["security"] = json!([]);
    }
    if let Some(role) = route.role {
        let role = match role {
            Role::Observe => "observe",
            Role::Control => "control",
        };
        operation["x-role"] = json!(role);
    }
    match route.path {
        "/eval" => operation["requestBody"] = body("EvalRequest"),
        "/query" => operation["requestBody"] = body("QueryRequest"),
        "/targets" => operation["parameters"] = parameters(&TARGETS, &[]),
        "/backtrace" => operation["parameters"] = parameters(&STACKS, &[]),
        "/samples" => operation["parameters"] = parameters(&SAMPLES, &["pid", "seconds", "rate"]),
        "/ws" => operation["parameters"] = parameters(&RELAY, &["pid"]),
        _ => {}
    }
    operation
}

fn body(schema: &str) -> Value {
    json!({
        "required": true,
        "content": {"application/json": {"schema": reference(schema)}},
    })
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

/// What each path may answer.
fn responses(route: &Route) -> Value {
    let content = |schema: &str| json!({"application/json": {"schema": reference(schema)}});
    let refusal = |words: &str| json!({"description": words, "content": content("Refusal")});
    let mut responses = json!({
        "400": refusal("the request is not understood"),
        "403": refusal("not permitted for this page, name, address or token"),
        "408": refusal("the request did not arrive in time"),
        "431": refusal("the head is too long"),
    });
    let answered = match route.path {
        "/health" => "Health",
        "/targets" => "NodeReport",
        "/query" => "QueryReport",
        "/samples" => "SamplesReport",
        "/backtrace" | "/eval" => "SetReport",
        _ => "Anything",
    };
    if route.path == "/ws" {
        responses["101"] = json!({"description": "the conversation begins"});
    } else {
        responses["200"] = json!({"description": "the answer", "content": content(answered)});
    }
    if route.role.is_some() {
        responses["401"] = refusal("no token, or a wrong one");
        responses["429"] = refusal("too many wrong tokens from this address");
        responses["503"] = refusal("too much to do");
    }
    if route.method == "POST" {
        responses["411"] = refusal("a body without a length");
        responses["413"] = refusal("a body that is too long");
        responses["415"] = refusal("a body that is not JSON");
    }
    if matches!(
        route.path,
        "/backtrace" | "/eval" | "/query" | "/samples" | "/ws"
    ) {
        responses["404"] = refusal("no such target, or no such thread of it");
        responses["409"] = refusal("the target cannot do it, or the request names several targets");
        responses["502"] = refusal("the target cannot be reached");
        responses["504"] = refusal("the target, or the query, took too long");
    }
    responses
}

type ParameterDocs = [(&'static str, &'static str, &'static str)];

const TARGETS: [(&str, &str, &str); 1] = [(
    "dead",
    "boolean",
    "also those that have ended and left recorded rows",
)];

const STACKS: [(&str, &str, &str); 10] = [
    ("rank", "integer", "of the target with this rank"),
    (
        "ranks",
        "string",
        "of those with these: 0,2-5, all or failed",
    ),
    ("pid", "integer", "of this process"),
    ("all", "boolean", "of every thread; else of the main thread"),
    (
        "thread",
        "string",
        "of one thread, by its name or one of its ids",
    ),
    (
        "tasks",
        "boolean",
        "of the asyncio tasks that are not done, instead of threads",
    ),
    ("locals", "boolean", "with local variables"),
    ("native", "boolean", "with native frames"),
    (
        "pause",
        "boolean",
        "hold a thread whose stack changes during the read",
    ),
    ("probe_threads", "boolean", "with the threads of the probe"),
];

const SAMPLES: [(&str, &str, &str); 8] = [
    ("pid", "integer", "of this process"),
    ("seconds", "number", "duration in seconds, at most 60"),
    ("rate", "integer", "readings per second"),
    ("thread", "string", "only of this thread"),
    ("idle", "boolean", "also threads that sleep or wait"),
    ("threads", "boolean", "each thread apart"),
    ("functions", "boolean", "all lines of a function together"),
    (
        "pause",
        "boolean",
        "hold a thread whose stack changes during the read",
    ),
];

const RELAY: [(&str, &str, &str); 2] = [
    ("pid", "integer", "with the probe of this process"),
    ("attach", "boolean", "which is attached if it is missing"),
];

fn parameters(words: &ParameterDocs, required: &[&str]) -> Value {
    let parameter = |(name, kind, about): &(&str, &str, &str)| {
        json!({
            "name": name,
            "in": "query",
            "description": about,
            "required": required.contains(name),
            "schema": limited(name, kind),
        })
    };
    words.iter().map(parameter).collect()
}

/// The type, and what it may be.
fn limited(name: &str, kind: &str) -> Value {
    match (name, kind) {
        ("pid" | "rank" | "frame", _) => {
            json!({"type": "integer", "minimum": 0, "maximum": u32::MAX})
        }
        ("rate", _) => json!({"type": "integer", "minimum": 1, "maximum": 10_000}),
        ("seconds", _) => json!({"type": "number", "minimum": 0, "maximum": 60}),
        ("ranks", _) => {
            json!({"type": "string", "pattern": "^(all|failed|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$"})
        }
        ("thread", _) => json!({"type": "string"}),
        _ => json!({"type": kind}),
    }
}

fn schemas() -> Value {
    let text = json!({"type": "string"});
    let whole = json!({"type": "integer", "minimum": 0, "maximum": u32::MAX});
    let ranks = limited("ranks", "string");
    json!({
        "Anything": {},
        "Health": {
            "type": "object",
            "required": ["status", "version", "protocol"],
            "properties": {"status": text, "version": text, "protocol": {"type": "integer"}},
        },
        "Refusal": {
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": {"type": "string", "description": "what is wrong"},
                "hint": {"type": "string", "description": "what to do about it"},
                "kind": {"enum": ["ended", "no_probe", "not_done", "no_thread", "syntax", "blind"]},
            },
        },
        "NodeReport": {
            "type": "object",
            "required": ["host", "role", "targets"],
            "properties": {
                "host": text,
                "role": {"enum": ["observe", "control"]},
                "targets": {"type": "array", "items": {
                    "type": "object",
                    "required": ["pid", "probe", "member", "bears_rank", "command"],
                }},
                "dead": {"type": "array", "items": {
                    "type": "object",
                    "required": ["pid", "rank", "age_seconds", "bytes", "tables", "command"],
                }},
            },
        },
        "EvalRequest": {
            "type": "object",
            "required": ["code"],
            "additionalProperties": false,
            "properties": {
                "code": {"type": "string"},
                "rank": whole, "ranks": ranks, "pid": whole,
                "thread": text, "frame": whole,
                "timeout_seconds": {"type": "number", "minimum": 0, "maximum": 3600},
                "max_output": {"type": "integer", "minimum": 0, "maximum": i64::MAX},
            },
        },
        "QueryRequest": {
            "type": "object",
            "required": ["sql"],
            "additionalProperties": false,
            "properties": {
                "sql": text,
                "rank": whole, "ranks": ranks, "pid": whole,
                "pids": {"type": "array", "items": whole},
            },
        },
        "QueryReport": {
            "type": "object",
            "required": ["columns", "rows", "took_seconds", "missing"],
            "properties": {
                "columns": {"type": "array", "items": text},
                "rows": {"type": "array", "items": {"type": "array"}},
                "took_seconds": {"type": "number"},
                "missing": {"type": "array", "items": {"type": "object", "required": ["error"]}},
            },
        },
        "SetReport": {
            "type": "object",
            "required": ["targets", "missing_ranks"],
            "properties": {
                "targets": {"type": "array", "items": {
                    "type": "object",
                    "required": ["target", "pid", "rank", "error", "report"],
                }},
                "missing_ranks": {"type": ["string", "null"]},
            },
        },
        "SamplesReport": {
            "type": "object",
            "required": ["taken", "counted", "places", "stacks"],
        },
    })
}
