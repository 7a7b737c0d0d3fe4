//! Everything that is refused, each with its status and words, and that the target never noticed.

use std::net::Ipv4Addr;

use serde_json::json;

use probing_testkit::{Python, Sandbox, Target};

use crate::agent::{Agent, answer};
use crate::sandbox;

/// A target whose agent nobody is let in at, and what it looked like before.
struct Guarded {
    sandbox: Sandbox,
    target: Target,
    agent: Agent,
}

impl Guarded {
    fn start() -> Self {
        let sandbox = sandbox();
        let python = Python::all().into_iter().next_back().unwrap();
        let target = sandbox.probed(&python, "idle.py");
        let agent = Agent::start(&sandbox);
        Self {
            sandbox,
            target,
            agent,
        }
    }

    /// Nothing ran, nothing was written down, and it still answers.
    fn check_untouched(self) {
        assert_eq!(Agent::audit(&self.sandbox), Vec::<serde_json::Value>::new());
        let value = self
            .agent
            .post("/eval", &json!({"code": "'noticed' in globals()"}))
            .json();
        assert_eq!(value["targets"][0]["report"]["value"], "False");
        let ended = self.target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    }
}

const NOTICED: &str = r#"{"code": "noticed = True"}"#;
const JSON: &str = "Content-Type: application/json";

#[test]
fn without_the_right_token_there_is_nothing() {
    let guarded = Guarded::start();
    let agent = &guarded.agent;
    let upper = agent.token.to_uppercase();
    for line in [
        "GET /targets",
        "GET /backtrace",
        "GET /samples?pid=1&seconds=1&rate=1",
        "GET /ws?pid=1",
        "GET /openapi.json",
        "GET /",
        "GET /nowhere",
        "POST /eval",
        "POST /query",
        "DELETE /targets",
    ] {
        let (status, error) = agent.bare(line, &[JSON], NOTICED).refusal();
        assert_eq!((status, error.as_str()), (401, "no token"), "{line}");
    }
    for shown in [
        "Authorization: Bearer wrong".to_owned(),
        format!("Authorization: Bearer {upper}"),
        format!("Authorization: Bearer {}x", agent.token),
        "Authorization: Bearer ".to_owned(),
        format!("Authorization: Basic {}", agent.token),
    ] {
        let (status, _) = agent.bare("POST /eval", &[JSON, &shown], NOTICED).refusal();
        assert_eq!(status, 401, "{shown}");
    }
    let twice = format!("Authorization: Bearer {}", agent.token);
    let (status, _) = agent.bare("GET /targets", &[&twice, &twice], "").refusal();
    assert_eq!(status, 400);
    let ran = {
        let mut command = agent.command(&guarded.sandbox, ["eval", "noticed = True"]);
        command.env("PROBING_TOKEN", "wrong");
        probing_testkit::CommandResult::to_the_end(command)
    };
    assert_eq!(ran.status, 3);
    assert_eq!(
        ran.stderr,
        "error: the agent does not know this token\nhint: the agent prints the file of its token when it starts; or \
         the token is its PROBING_TOKEN\n"
    );
    guarded.check_untouched();
}

#[test]
fn a_client_that_guesses_tokens_waits_and_one_with_the_right_token_does_not() {
    let guarded = Guarded::start();
    let agent = &guarded.agent;
    let guess = |number: usize| {
        let shown = format!("Authorization: Bearer guess{number}");
        // Another of the addresses that every program of the machine has: they count as one.
        let from = Ipv4Addr::new(127, 0, 0, 2 + number as u8);
        agent.bare_from(from, "GET /targets", &[&shown])
    };
    let statuses: Vec<u16> = (0..11).map(|number| guess(number).status).collect();
    assert_eq!(statuses[..10], [401; 10]);
    assert_eq!(statuses[10], 429);
    let refused = guess(0);
    assert_eq!(
        refused.refusal(),
        (429, "too many wrong tokens from this address".to_owned())
    );
    assert!(refused.head.contains("Retry-After: "), "{refused:?}");
    // From the same address, at the same time.
    assert_eq!(agent.get("/targets").status, 200);
    assert_eq!(agent.bare("GET /health", &[], "").status, 200);
    guarded.check_untouched();
}

#[test]
fn a_token_for_looking_runs_nothing() {
    let guarded = Guarded::start();
    let agent = &guarded.agent;
    let observe = format!("Authorization: Bearer {}", agent.observe);
    for line in ["POST /eval", "GET /ws?pid=1"] {
        let refused = agent.bare(line, &[&observe, JSON], NOTICED).refusal();
        assert_eq!(
            refused,
            (403, "this token is for observers only".to_owned()),
            "{line}"
        );
    }
    let looked = agent.bare("GET /backtrace?locals=true", &[&observe], "");
    assert_eq!(looked.status, 200, "{looked:?}");
    let mut command = agent.command(&guarded.sandbox, ["backtrace"]);
    command.env("PROBING_TOKEN", &agent.observe);
    assert_eq!(
        probing_testkit::CommandResult::to_the_end(command).status,
        0
    );
    let mut command = agent.command(&guarded.sandbox, ["eval", "noticed = True"]);
    command.env("PROBING_TOKEN", &agent.observe);
    let ran = probing_testkit::CommandResult::to_the_end(command);
    assert_eq!(ran.status, 3);
    assert!(
        ran.stderr
            .starts_with("error: this token is for observers only\nhint: "),
        "{ran:?}"
    );
    guarded.check_untouched();
}

#[test]
fn a_read_only_agent_runs_nothing_for_anybody() {
    let sandbox = sandbox();
    let python = Python::all().into_iter().next_back().unwrap();
    let target = sandbox.probed(&python, "idle.py");
    let agent = Agent::with(
        &sandbox,
        &["--listen", "127.0.0.1:0", "--read-only"],
        |_| {},
    );
    let refused = agent
        .post("/eval", &json!({"code": "noticed = True"}))
        .refusal();
    assert_eq!(
        refused,
        (403, "this token is for observers only".to_owned())
    );
    assert_eq!(agent.get("/backtrace").status, 200);
    drop(target);
}

#[test]
fn no_web_page_uses_an_agent() {
    let guarded = Guarded::start();
    let agent = &guarded.agent;
    let evil = "Origin: https://evil.example";
    let (status, error) = agent
        .request("POST /eval", &[JSON, evil], NOTICED)
        .refusal();
    assert_eq!(
        (status, error.as_str()),
        (403, "a web page of another origin: https://evil.example")
    );
    let upgrade = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let pid = guarded.target.pid();
    let socket = agent.request(
        &format!("GET /ws?pid={pid}"),
        &[&upgrade[..], &[evil]].concat(),
        "",
    );
    assert_eq!(socket.refusal().0, 403);
    // The preflight of a page that would like to.
    let preflight = agent.bare(
        "OPTIONS /eval",
        &[evil, "Access-Control-Request-Method: POST"],
        "",
    );
    assert_eq!(preflight.refusal().0, 403);
    assert!(
        !preflight.head.to_lowercase().contains("access-control"),
        "{preflight:?}"
    );
    // What a form of a page can send without asking.
    let text = ["Content-Type: text/plain", "Sec-Fetch-Site: cross-site"];
    assert_eq!(agent.request("POST /eval", &text, NOTICED).refusal().0, 403);
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
    ] {
        let kind = format!("Content-Type: {kind}");
        let (status, error) = agent.request("POST /eval", &[&kind], NOTICED).refusal();
        assert_eq!(
            (status, error.as_str()),
            (415, "a body must be application/json"),
            "{kind}"
        );
    }
    let (status, error) = agent
        .request("POST /eval", &["Host: evil.example", JSON], NOTICED)
        .refusal();
    assert_eq!(
        (status, error.as_str()),
        (403, "not a name of this machine: evil.example")
    );
    // A name of the machine in front of somebody else's domain is somebody else's name.
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let suffixed = format!("Host: {host}.evil.example");
    let refused = agent.request("POST /eval", &[&suffixed, JSON], NOTICED);
    assert_eq!(refused.refusal().0, 403);
    let own = agent.request("GET /targets", &[&format!("Host: {host}")], "");
    assert_eq!(own.status, 200, "{own:?}");
    guarded.check_untouched();
}

#[test]
fn what_is_too_large_too_slow_or_malformed_is_refused() {
    let guarded = Guarded::start();
    let agent = &guarded.agent;
    let huge = agent.request("POST /eval", &[JSON, "Content-Length: 104857600"], "{}");
    assert_eq!(
        huge.refusal(),
        (413, "a body of more than 1048576 bytes".to_owned())
    );
    let long = agent.request(&format!("GET /{}", "x".repeat(20_000)), &[], "");
    assert_eq!(long.refusal().0, 431);
    let many = vec!["X: y"; 100];
    assert_eq!(agent.request("GET /targets", &many, "").refusal().0, 431);
    let chunked = agent.request("POST /eval", &[JSON, "Transfer-Encoding: chunked"], "");
    assert_eq!(chunked.refusal().0, 411);
    for bytes in [
        b"\x00\x01\x02\r\n\r\n".as_slice(),
        b"GET /targets\r\n\r\n",
        b"GET /targets HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET http://elsewhere/ HTTP/1.1\r\n\r\n",
        // The first words of somebody who thinks that this is TLS.
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ] {
        let refused = agent.send(bytes).refusal();
        assert_eq!(refused.0, 400, "{bytes:?}");
    }
    for body in [
        "",
        "{",
        "[]",
        "{\"code\": 1}",
        "{\"code\": \"x\", \"other\": 1}",
        "\u{0}",
        "{}",
    ] {
        let refused = agent.request("POST /eval", &[JSON], body).refusal();
        assert_eq!(refused.0, 400, "{body}");
    }
    // Half a head, and half a body, and then nothing more.
    let mut slow = agent.connect();
    std::io::Write::write_all(&mut slow, b"GET /targets HTTP/1.1\r\nHost: x\r\n").unwrap();
    let mut slower = agent.connect();
    let head = format!(
        "POST /eval HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n{JSON}\r\nContent-Length: 50\r\n\r\n{{",
        agent.token
    );
    std::io::Write::write_all(&mut slower, head.as_bytes()).unwrap();
    // Others are served meanwhile.
    assert_eq!(agent.get("/targets").status, 200);
    for slow in [slow, slower] {
        assert_eq!(
            answer(slow).refusal(),
            (408, "the request did not arrive within 5 s".to_owned())
        );
    }
    guarded.check_untouched();
}

#[test]
fn what_is_not_plainly_one_request_is_refused() {
    let guarded = Guarded::start();
    let agent = &guarded.agent;
    let head = format!(
        "POST /eval HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n{JSON}\r\n",
        agent.token
    );
    let length = NOTICED.len();
    for (fields, status) in [
        ("no colon".to_owned(), 400),
        ("name : x".to_owned(), 400),
        ("x: \0".to_owned(), 400),
        (format!("Host: localhost\r\nContent-Length: {length}"), 400),
        (
            format!("Content-Length: {length}\r\nContent-Length: 2"),
            400,
        ),
        ("Content-Length: -1".to_owned(), 400),
        ("Content-Length: 0x10".to_owned(), 400),
        ("Content-Length: ".to_owned(), 400),
        (
            format!("Content-Length: {length}\r\nTransfer-Encoding: x"),
            400,
        ),
        ("Content-Length: 99999999999999999999999".to_owned(), 400),
        (
            format!("Content-Length: {length}\r\nTransfer-Encoding: chunked"),
            411,
        ),
        ("Transfer-Encoding: chunked".to_owned(), 411),
        ("Content-Length: 1048577".to_owned(), 413),
        ("a: b\r\n".repeat(70) + "a: b", 431),
    ] {
        let request = format!("{head}{fields}\r\n\r\n{NOTICED}");
        let refused = agent.send(request.as_bytes()).refusal();
        assert_eq!(refused.0, status, "{fields}: {refused:?}");
    }
    for line in [
        "GET",
        "GET /targets HTTP/9.9",
        "GET * HTTP/1.1",
        "CONNECT x:80 HTTP/1.1",
        "PRI * HTTP/2.0",
    ] {
        let refused = agent.send(format!("{line}\r\n\r\n").as_bytes()).refusal();
        assert_eq!(refused.0, 400, "{line}: {refused:?}");
    }
    // What follows a request on its connection is no request, also when it looks like one.
    let token = format!("Authorization: Bearer {}", agent.token);
    let second = format!(
        "POST /eval HTTP/1.1\r\nHost: localhost\r\n{token}\r\n{JSON}\r\nContent-Length: {length}\r\n\r\n{NOTICED}"
    );
    let both = format!("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n{second}");
    let answer = agent.send(both.as_bytes());
    assert_eq!(answer.json()["status"], "ok", "{answer:?}");
    guarded.check_untouched();
}

#[test]
fn a_path_is_what_it_says_and_nothing_else() {
    let guarded = Guarded::start();
    let agent = &guarded.agent;
    for path in [
        "/",
        "/eval/",
        "//eval",
        "/./eval",
        "/../eval",
        "/%65val",
        "/EVAL",
        "/targets/../eval",
        "/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/targets;x",
        "/health/../targets",
    ] {
        let refused = agent
            .request(&format!("POST {path}"), &[JSON], NOTICED)
            .refusal();
        assert_eq!(refused, (404, "no such path".to_owned()), "{path}");
    }
    for (line, allowed) in [
        ("GET /eval", "POST"),
        ("PUT /eval", "POST"),
        ("HEAD /targets", "GET"),
    ] {
        let refused = agent.request(line, &[], "");
        assert_eq!(refused.status, 405, "{line}");
        assert!(
            refused.head.contains(&format!("Allow: {allowed}")),
            "{refused:?}"
        );
    }
    for query in [
        "pid=x",
        "rank=1&pid=2",
        "ranks=x",
        "all=1",
        "other=1",
        "pid=1&pid=2",
        "all=true&tasks=true",
    ] {
        let refused = agent.get(&format!("/backtrace?{query}")).refusal();
        assert_eq!(refused.0, 400, "{query}");
    }
    let refused = agent.get("/backtrace?pid=1").refusal();
    assert_eq!(refused, (404, "no such target: 1".to_owned()));
    guarded.check_untouched();
}
