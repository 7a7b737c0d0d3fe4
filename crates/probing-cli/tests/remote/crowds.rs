//! Denial of service: floods of connections and requests keep nobody out who has the right token.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;

use probing_testkit::{Python, wait_until};
use serde_json::json;

use crate::agent::{Agent, connect_from};
use crate::sandbox;
use crate::sockets::Socket;

/// More than an agent has ever had room for.
const CROWD: usize = 600;

fn latest() -> Python {
    Python::all().into_iter().next_back().unwrap()
}

#[test]
fn idle_connections_without_a_token_keep_nobody_out() {
    let sandbox = sandbox();
    let target = sandbox.probed(&latest(), "idle.py");
    let agent = Agent::start(&sandbox);
    let mut conversation = Socket::open(&agent, &target);
    let crowd: Vec<TcpStream> = (0..CROWD).map(|_| agent.connect()).collect();
    // While they all are there: others are let in, from the same address, and who was in stays.
    for _ in 0..5 {
        assert_eq!(agent.get("/targets").status, 200);
    }
    assert_eq!(agent.probing(&sandbox, ["eval", "6 * 7"]).ok(), "42\n");
    conversation.say(&json!({"id": 1, "op": "eval", "code": "6 * 7"}));
    assert_eq!(conversation.hear().unwrap()["value"], "42");
    drop(crowd);
    assert_eq!(target.end().status, 0);
}

#[test]
fn a_crowd_from_outside_the_ranges_takes_no_place() {
    let sandbox = sandbox();
    let agent = Agent::with(
        &sandbox,
        &["--listen", "127.0.0.1:0", "--allow", "127.0.0.1"],
        |_| {},
    );
    let port = agent.address.port();
    let outside = Ipv4Addr::new(127, 0, 0, 2);
    // Each goes on as soon as it has been told, or was hung up on, and stays.
    let some = move || -> Vec<TcpStream> {
        let told = |mut stream: TcpStream| {
            stream.read_exact(&mut [0]).ok();
            stream
        };
        (0..CROWD / 6)
            .map(|_| told(connect_from(outside, port)))
            .collect()
    };
    let crowd: Vec<_> = (0..6).map(|_| thread::spawn(some)).collect();
    let crowd: Vec<_> = crowd.into_iter().map(|some| some.join().unwrap()).collect();
    for _ in 0..5 {
        assert_eq!(agent.get("/targets").status, 200);
    }
    drop(crowd);
}

#[test]
fn a_flood_of_wrong_tokens_keeps_no_right_one_out() {
    let sandbox = sandbox();
    let agent = Agent::start(&sandbox);
    let guess = || {
        let mut stream = agent.connect();
        let head =
            "GET /targets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer guess\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    // Each waits for its answer, which comes later and later.
    let crowd: Vec<TcpStream> = (0..100).map(|_| guess()).collect();
    for _ in 0..5 {
        assert_eq!(agent.get("/targets").status, 200);
    }
    for stream in crowd {
        let status = crate::agent::answer(stream).status;
        assert!(matches!(status, 401 | 429), "{status}");
    }
}

#[test]
fn observers_leave_room_for_control() {
    let sandbox = sandbox();
    let target = sandbox.probed(&latest(), "idle.py");
    let agent = Agent::start(&sandbox);
    let pid = target.pid();
    let sample = || {
        let mut stream = agent.connect();
        let head = format!(
            "GET /samples?pid={pid}&seconds=60&rate=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
            agent.observe
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let crowd: Vec<TcpStream> = (0..40).map(|_| sample()).collect();
    // A thread for each that is being answered.
    wait_until("they are being sampled", || {
        agent.process.usage().threads >= 16
    });
    for _ in 0..5 {
        let evaluated = agent.post("/eval", &json!({"code": "6 * 7"}));
        assert_eq!(evaluated.status, 200, "{evaluated:?}");
    }
    drop(crowd);
}
