//! Agents and probes that lie: whatever they say is shown, and obeyed by no terminal.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use probing_proto::agent::{NodeReport, NodeTarget, Refusal, Role};
use probing_proto::message::{Event, Failure, Hello, Message, PROTOCOL, RequestId};
use probing_proto::process::{Pid, Stat};
use probing_proto::report::{ListedProcess, ProbeState};
use probing_proto::wire::{self, Decoder, MAX_ANSWER, MAX_REQUEST};
use probing_testkit::{CommandResult, EVIL, Terminal, forged, obeyed};

use crate::sandbox;

/// Commands that ask an agent, each of them another thing.
const COMMANDS: &[&[&str]] = &[
    &["list"],
    &["list", "--json"],
    &["backtrace", "--all"],
    &["backtrace", "--json"],
    &["eval", "1"],
    &["query", "SELECT 1"],
    &["query", "SELECT * FROM python.threads", "--csv"],
    &["flamegraph", "--for", "0.1", "-o", "-"],
    &["breakpoints"],
    &["top", "--once"],
    &["attach"],
    &["detach"],
];

fn evil() -> Failure {
    Failure::new(EVIL).with_hint(EVIL)
}

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn refusal() -> String {
    let refusal = Refusal {
        failure: evil(),
        kind: None,
    };
    answer(
        "503 Service Unavailable",
        &serde_json::to_string(&refusal).unwrap(),
    )
}

/// One process, everything of which is hostile.
fn targets() -> String {
    let process = ListedProcess {
        pid: Pid(4242),
        rank: None,
        role: None,
        python: Some(EVIL.to_owned()),
        probe: ProbeState::Running,
        stopped: false,
        stops: 0,
        uid: 0,
        age_seconds: 1,
        recording: None,
        command: vec![EVIL.to_owned()],
    };
    let report = NodeReport {
        host: EVIL.to_owned(),
        role: Role::Control,
        targets: vec![NodeTarget {
            process,
            member: true,
            bears_rank: false,
            world_size: None,
            node: None,
        }],
        dead: Vec::new(),
    };
    answer("200 OK", &serde_json::to_string(&report).unwrap())
}

/// Answers every request as `told` says for its first line.
fn rogue_agent(told: impl Fn(&str) -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever hangs up has heard enough.
            answered(stream, &told).ok();
        }
    });
    address
}

fn answered(mut stream: TcpStream, told: &impl Fn(&str) -> String) -> io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? > 0 {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    stream.write_all(told(head.lines().next().unwrap_or_default()).as_bytes())
}

/// All commands against `target`, through a pipe and on a terminal: nothing is obeyed. Whether any of them told what was said.
fn check(target: &str, commands: &[&[&str]]) -> bool {
    let sandbox = sandbox();
    let command = |arguments: &[&str]| {
        let mut command = sandbox.command();
        command.args(["-t", target]).args(arguments);
        command
            .env("PROBING_TLS", "off")
            .env("PROBING_TOKEN", "a token that nobody else has")
            .env("HOME", sandbox.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME");
        command
    };
    let mut heard = false;
    for arguments in commands {
        let piped = CommandResult::to_the_end(command(arguments));
        let piped = format!("{}{}", piped.stdout, piped.stderr);
        let (_, shown) = Terminal::start(command(arguments)).finish();
        for text in [piped, shown] {
            assert!(obeyed(&text).is_empty(), "{arguments:?}: {text:?}");
            assert_eq!(forged(&text), None, "{arguments:?}: {text:?}");
            heard |= text.contains("[35;5m");
        }
    }
    heard
}

#[test]
fn a_hostile_agent_cannot_reach_the_terminal() {
    let refuses = rogue_agent(|_| refusal());
    assert!(check(&refuses.to_string(), COMMANDS));
    let lists = rogue_agent(|line| {
        if line.contains("/targets") {
            targets()
        } else {
            refusal()
        }
    });
    assert!(check(&lists.to_string(), COMMANDS));
}

#[test]
fn what_is_no_agent_cannot_reach_the_terminal_either() {
    for told in [
        format!("HTTP/1.1 200 {EVIL}\r\n\r\n"),
        format!("SSH-2.0-{EVIL}\r\n"),
        answer(EVIL, EVIL),
        answer("200 OK", &serde_json::json!({EVIL: EVIL}).to_string()),
        answer("418 I'm a teapot", &serde_json::json!([EVIL]).to_string()),
    ] {
        let rogue = rogue_agent(move |_| told.clone());
        // Not all of it is told.
        check(&rogue.to_string(), &COMMANDS[..6]);
    }
}

/// Greets, and fails at whatever it is asked.
fn rogue_probe(listener: UnixListener, hello: Hello) {
    let say = move |stream: &mut UnixStream, id, event| {
        let bytes = wire::encode(&Message { id, event }, &[], MAX_ANSWER).unwrap();
        stream.write_all(&bytes)
    };
    let serve = move |mut stream: UnixStream| -> io::Result<()> {
        say(&mut stream, None, Event::Hello(hello.clone()))?;
        let (mut decoder, mut buffer) = (Decoder::new(MAX_REQUEST), [0; 4096]);
        loop {
            while let Some(frame) = decoder.next_frame().unwrap() {
                let request: serde_json::Value = frame.message().unwrap();
                let id = request["id"].as_u64().map(RequestId);
                say(&mut stream, id, Event::Failed(evil()))?;
            }
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                length => decoder.push(&buffer[..length]),
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever hangs up has heard enough.
            serve(stream).ok();
        }
    });
}

#[test]
fn a_hostile_probe_cannot_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("probe.sock");
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let hello = Hello {
        protocol: PROTOCOL,
        probe: EVIL.to_owned(),
        python: EVIL.to_owned(),
        pid: Pid(std::process::id()),
        start_ticks: Stat::parse(&stat).unwrap().start_ticks,
        thread: Some(u32::MAX),
        rank: None,
        stops: 0,
    };
    rogue_probe(UnixListener::bind(&socket).unwrap(), hello);
    let target = format!("unix:{}", socket.display());
    assert!(check(&target, &COMMANDS[2..]));
}
