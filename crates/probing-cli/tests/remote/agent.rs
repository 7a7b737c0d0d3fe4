//! An agent for a test, and what is said to it without the command.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::ops::Deref;
use std::process::Command;

use probing_testkit::{CommandResult, DEADLINE, Sandbox, Target};
use rustix::net::{AddressFamily, SocketType};
use serde_json::Value;

/// An agent on a port of its own, in the world of a sandbox.
pub(crate) struct Agent {
    pub(crate) process: Target,
    line: Line,
    /// What it said when it started.
    pub(crate) greeting: Vec<String>,
    /// The token that may look.
    pub(crate) observe: String,
}

/// The way to it, for any number of clients.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    /// The token that may do everything.
    pub(crate) token: String,
}

impl Deref for Agent {
    type Target = Line;

    fn deref(&self) -> &Line {
        &self.line
    }
}

/// What came back over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Its status, and what it says is wrong; that there is a hint, too.
    #[track_caller]
    pub(crate) fn refusal(&self) -> (u16, String) {
        let json = self.json();
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        assert!(self.head.contains("application/json"), "{self:?}");
        (self.status, text("error"))
    }
}

impl Agent {
    /// On a loopback address, in plain text.
    pub(crate) fn start(sandbox: &Sandbox) -> Self {
        Self::with(sandbox, &["--listen", "127.0.0.1:0"], |_| {})
    }

    pub(crate) fn with(
        sandbox: &Sandbox,
        arguments: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = in_shell(sandbox, arguments);
        change(&mut command);
        let mut process = sandbox.target_command(command).start_without_waiting();
        let mut greeting = vec![process.line()];
        let first = greeting[0].clone();
        let Some(rest) = first.strip_prefix("listening on ") else {
            panic!("no agent: {first}");
        };
        let address: SocketAddr = rest.split(' ').next().unwrap().parse().unwrap();
        while !greeting.last().unwrap().starts_with("use it with") {
            greeting.push(process.line());
        }
        let tokens = fs::read_to_string(sandbox.runtime_dir().join("agents/token")).unwrap();
        let token = |role: &str| {
            let mut lines = tokens.lines();
            lines
                .find_map(|line| line.strip_prefix(role))
                .unwrap()
                .trim()
                .to_owned()
        };
        Self {
            process,
            line: Line {
                address,
                token: token("control"),
            },
            greeting,
            observe: token("observe"),
        }
    }

    /// `probing -t HOST:PORT …`, with what a command remembers in the sandbox.
    pub(crate) fn probing<S: AsRef<OsStr>>(
        &self,
        sandbox: &Sandbox,
        arguments: impl IntoIterator<Item = S>,
    ) -> CommandResult {
        CommandResult::to_the_end(self.command(sandbox, arguments))
    }

    /// The same as somebody on another machine, who has the token and trusts the agent when it is first met: `other` is a
    /// world without the agent.
    pub(crate) fn probing_elsewhere<S: AsRef<OsStr>>(
        &self,
        other: &Sandbox,
        arguments: impl IntoIterator<Item = S>,
    ) -> CommandResult {
        let mut command = self.command(other, arguments);
        command
            .env("PROBING_TOKEN", &self.token)
            .env("PROBING_ACCEPT_NEW", "1");
        CommandResult::to_the_end(command)
    }

    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        sandbox: &Sandbox,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = sandbox.command();
        command
            .args(["-t", &self.name()])
            .args(arguments)
            .env("XDG_STATE_HOME", sandbox.path().join("state"))
            .env_remove("PROBING_TOKEN")
            .env_remove("PROBING_ACCEPT_NEW")
            .env_remove("PROBING_FINGERPRINT")
            .env_remove("PROBING_TLS");
        command
    }

    /// The SHA-256 of its certificate, as it printed it.
    pub(crate) fn fingerprint(&self) -> String {
        let line = self.greeting[1].strip_prefix("certificate ");
        line.unwrap().to_owned()
    }

    /// What was written down of what was done in targets.
    pub(crate) fn audit(sandbox: &Sandbox) -> Vec<Value> {
        let only_reads = [
            "targets",
            "backtrace",
            "query",
            "samples",
            "connect",
            "locals",
            "memory",
            "file",
            "source",
            "complete",
            "describe",
            "heap",
            "points",
            "traces",
            "stops",
            "follow",
        ];
        let mut lines = Self::whole_audit(sandbox);
        lines.retain(|line| !only_reads.iter().any(|action| line["action"] == *action));
        lines
    }

    /// The same, and what was only looked at.
    pub(crate) fn whole_audit(sandbox: &Sandbox) -> Vec<Value> {
        let text = fs::read_to_string(sandbox.runtime_dir().join("agents/audit.log"));
        let text = text.unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Line {
    /// As `-t` takes it on this machine.
    pub(crate) fn name(&self) -> String {
        format!("127.0.0.1:{}", self.address.port())
    }

    /// What comes back when these bytes are sent.
    pub(crate) fn send(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // Whoever is refused early may hang up before all has been sent.
        stream.write_all(bytes).ok();
        answer(stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.name()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// A request with these header fields beside `Host` and the token.
    pub(crate) fn request(&self, line: &str, fields: &[&str], body: &str) -> Answer {
        let token = format!("Authorization: Bearer {}", self.token);
        self.bare(line, &[&[token.as_str()], fields].concat(), body)
    }

    /// A request without a token and without a body, from another loopback address.
    pub(crate) fn bare_from(&self, from: Ipv4Addr, line: &str, fields: &[&str]) -> Answer {
        let mut text = format!("{line} HTTP/1.1\r\nHost: {}\r\n", self.name());
        for field in fields {
            text += &format!("{field}\r\n");
        }
        text += "Connection: close\r\n\r\n";
        let mut stream = connect_from(from, self.address.port());
        stream.write_all(text.as_bytes()).ok();
        answer(stream)
    }

    /// A request without a token.
    pub(crate) fn bare(&self, line: &str, fields: &[&str], body: &str) -> Answer {
        let mut text = format!("{line} HTTP/1.1\r\n");
        if !fields
            .iter()
            .any(|field| field.to_lowercase().starts_with("host:"))
        {
            text += &format!("Host: {}\r\n", self.name());
        }
        for field in fields {
            text += &format!("{field}\r\n");
        }
        if !body.is_empty()
            && !fields
                .iter()
                .any(|field| field.starts_with("Content-Length"))
        {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        text += &format!("Connection: close\r\n\r\n{body}");
        self.send(text.as_bytes())
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request(&format!("GET {path}"), &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.request(
            &format!("POST {path}"),
            &["Content-Type: application/json"],
            &body.to_string(),
        )
    }
}

/// A connection to the agent on 127.0.0.1 from another loopback address.
pub(crate) fn connect_from(from: Ipv4Addr, port: u16) -> TcpStream {
    let from = SocketAddrV4::new(from, 0);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &from).unwrap();
    let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    rustix::net::connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// The rest of a connection, as an answer.
pub(crate) fn answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // It may be cut off: what was said before counts.
    stream.read_to_end(&mut bytes).ok();
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let Some(end) = end else {
        panic!("no answer: {:?}", String::from_utf8_lossy(&bytes));
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer {
        status,
        head,
        body: bytes[end + 4..].to_vec(),
    }
}

/// `probing agent …`, whose words can be read as they come.
fn in_shell(sandbox: &Sandbox, arguments: &[&str]) -> Command {
    let probing = sandbox.command();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" agent \"$@\" 2>&1"]);
    command.arg(probing.get_program()).args(arguments);
    for (name, value) in probing.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .env_remove("PROBING_TOKEN")
        .env_remove("PROBING_ALLOW")
        .env_remove("PROBING_TLS");
    command
}
