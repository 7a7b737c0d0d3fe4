//! `/ws`, spoken to by hand: what a browser or another program would say, and what none should.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use probing_testkit::{Python, Target};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::sandbox;

const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// A WebSocket, frame by frame.
pub(crate) struct Socket(TcpStream);

impl Socket {
    pub(crate) fn open(agent: &Agent, target: &Target) -> Self {
        let mut stream = agent.connect();
        let head = format!(
            "GET /ws?pid={} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            target.pid(),
            agent.name(),
            agent.token
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 101 ") && answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            "{answer}"
        );
        let mut socket = Self(stream);
        let hello = socket.hear().unwrap();
        assert_eq!(
            (&hello["event"], &hello["pid"]),
            (&json!("hello"), &json!(target.pid()))
        );
        socket
    }

    /// A masked frame, as clients send them.
    fn send(&mut self, kind: u8, payload: &[u8]) {
        let mask = [1, 2, 3, 4];
        let mut bytes = vec![0x80 | kind, 0xfe];
        bytes.extend((payload.len() as u16).to_be_bytes());
        bytes.extend(mask);
        bytes.extend(
            payload
                .iter()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        self.0.write_all(&bytes).unwrap();
    }

    pub(crate) fn say(&mut self, message: &Value) {
        self.send(TEXT, message.to_string().as_bytes());
    }

    /// What evaluated code prints, and how it ends.
    fn hear_eval(&mut self) -> (String, Value) {
        let mut output = String::new();
        loop {
            let message = self.hear().unwrap();
            match message["text"].as_str() {
                Some(text) => output.push_str(text),
                None => return (output, message),
            }
        }
    }

    /// The next text; none when it was ended.
    pub(crate) fn hear(&mut self) -> Option<Value> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).ok()?;
        let mut long = [0; 8];
        let length = match head[1] {
            126 => {
                self.0.read_exact(&mut long[6..]).ok()?;
                u64::from_be_bytes(long)
            }
            127 => {
                self.0.read_exact(&mut long).ok()?;
                u64::from_be_bytes(long)
            }
            short => u64::from(short),
        };
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).ok()?;
        (head[0] & 0xf == TEXT).then(|| serde_json::from_slice(&payload).unwrap())
    }
}

#[test]
fn a_websocket_carries_the_messages_of_the_probe() {
    let sandbox = sandbox();
    let python = Python::all().into_iter().next_back().unwrap();
    let target = sandbox.probed(&python, "idle.py");
    let agent = Agent::start(&sandbox);
    let mut socket = Socket::open(&agent, &target);
    socket.say(&json!({"id": 7, "op": "eval", "code": "print('out'); 6 * 7"}));
    let (output, end) = socket.hear_eval();
    assert_eq!((output.as_str(), &end["id"]), ("out\n", &json!(7)));
    assert_eq!(
        (&end["event"], &end["value"]),
        (&json!("evaluated"), &json!("42"))
    );
    // A message may come as its frame, too.
    let request = json!({"id": 8, "op": "eval", "code": "1 + 1"}).to_string();
    let mut frame = (request.len() as u32).to_le_bytes().to_vec();
    frame.extend(0_u32.to_le_bytes());
    frame.extend(request.as_bytes());
    socket.send(BINARY, &frame);
    assert_eq!(socket.hear().unwrap()["value"], "2");
    assert_eq!(Agent::audit(&sandbox).len(), 2);
    // What it had asked for ends with it.
    let code = "import time\ntry:\n    print('begun', end='')\n    while True: time.sleep(0.01)\nfinally:\n    ended = True";
    socket.say(&json!({"id": 9, "op": "eval", "code": code}));
    assert_eq!(socket.hear().unwrap()["text"], "begun");
    drop(socket);
    probing_testkit::wait_until("the code has ended", || {
        let answer = agent
            .post("/eval", &json!({"code": "'ended' in globals()"}))
            .json();
        answer["targets"][0]["report"]["value"] == "True"
    });
    assert_eq!(target.end().status, 0);
}

#[test]
fn a_websocket_that_talks_nonsense_is_ended() {
    let sandbox = sandbox();
    let python = Python::all().into_iter().next_back().unwrap();
    let target = sandbox.probed(&python, "idle.py");
    let agent = Agent::start(&sandbox);
    // Messages that are none are refused, and the conversation goes on.
    let mut socket = Socket::open(&agent, &target);
    for wrong in [
        "",
        "{",
        "[]",
        "{\"id\": 1}",
        "{\"id\": 1, \"op\": \"unknown\"}",
    ] {
        socket.send(TEXT, wrong.as_bytes());
        let refused = socket.hear().unwrap();
        assert_eq!(refused["event"], "failed", "{wrong}: {refused}");
    }
    socket.send(BINARY, &[0xff; 20]);
    assert_eq!(socket.hear().unwrap()["event"], "failed");
    // Frames that are none end it.
    let frames: [&[u8]; 6] = [
        // Not masked.
        &[0x81, 0x02, b'{', b'}'],
        // A kind that there is not.
        &[0x8f, 0x80, 0, 0, 0, 0],
        // Longer than any message.
        &[
            0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4,
        ],
        // Bits that mean nothing.
        &[0xf1, 0x80, 0, 0, 0, 0],
        // A control frame in pieces.
        &[0x09, 0x80, 0, 0, 0, 0],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ];
    for frame in frames {
        let mut socket = Socket::open(&agent, &target);
        socket.0.write_all(frame).unwrap();
        assert_eq!(socket.hear(), None, "{frame:?}");
    }
    // Without what makes it one.
    for fields in [&[][..], &["Upgrade: websocket", "Connection: Upgrade"]] {
        let pid = target.pid();
        let refused = agent
            .request(&format!("GET /ws?pid={pid}"), fields, "")
            .refusal();
        assert_eq!(
            refused,
            (400, "this path needs WebSocket, version 13".to_owned())
        );
    }
    assert_eq!(Agent::audit(&sandbox), Vec::<Value>::new());
    let ended = target.end();
    assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
}
