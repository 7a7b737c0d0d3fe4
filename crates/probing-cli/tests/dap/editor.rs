//! An editor: starts `probing dap`, or connects to one, and speaks the protocol with it.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use probing_testkit::{DEADLINE, Sandbox, Target};
use serde_json::{Value, json};

pub(crate) struct Editor {
    adapter: Adapter,
    messages: Receiver<Value>,
    /// Those that came before what was waited for.
    passed: Vec<Value>,
    seq: i64,
}

enum Adapter {
    Started(Child),
    Connected(TcpStream),
}

/// An adapter that listens on a port.
pub(crate) struct Listener {
    child: Child,
    pub(crate) address: String,
    pub(crate) token: String,
}

impl Listener {
    pub(crate) fn start(sandbox: &Sandbox) -> Self {
        let mut command = sandbox.command();
        command.args(["dap", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let line = line.trim().strip_prefix("listening on ").unwrap();
        let (address, token) = line.split_once(", adapterToken ").unwrap();
        Self {
            child,
            address: address.to_owned(),
            token: token.to_owned(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Editor {
    pub(crate) fn start(sandbox: &Sandbox) -> Self {
        let mut command = sandbox.command();
        let mut child = command
            .arg("dap")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let messages = messages(child.stdout.take().unwrap());
        Self {
            adapter: Adapter::Started(child),
            messages,
            passed: Vec::new(),
            seq: 0,
        }
    }

    pub(crate) fn connected(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let messages = messages(stream.try_clone().unwrap());
        Self {
            adapter: Adapter::Connected(stream),
            messages,
            passed: Vec::new(),
            seq: 0,
        }
    }

    /// One that has attached to a target, with these breakpoints in `steps.py`, and what became of them.
    pub(crate) fn attached(
        sandbox: &Sandbox,
        target: &Target,
        mut configuration: Value,
        breakpoints: Value,
    ) -> (Self, Value) {
        let mut editor = Self::start(sandbox);
        configuration["processId"] = target.pid().into();
        let set = editor.attach(configuration, breakpoints);
        (editor, set)
    }

    #[track_caller]
    pub(crate) fn attach(&mut self, configuration: Value, breakpoints: Value) -> Value {
        self.ask("initialize", json!({"adapterID": "probing"}));
        let attach = self.send("attach", configuration);
        // Or the reason why not.
        let begun = self.wait(|it| it["event"] == "initialized" || it["request_seq"] == attach);
        assert_eq!(begun["event"], "initialized", "{begun}");
        let source = json!({"path": crate::program()});
        let set = self.ask(
            "setBreakpoints",
            json!({"source": source, "breakpoints": breakpoints}),
        );
        self.ask("configurationDone", json!({}));
        self.answer(attach);
        self.event("process");
        set["breakpoints"].clone()
    }

    pub(crate) fn send(&mut self, command: &str, arguments: Value) -> i64 {
        self.seq += 1;
        let message =
            json!({"seq": self.seq, "type": "request", "command": command, "arguments": arguments});
        let text = message.to_string();
        let bytes = format!("Content-Length: {}\r\n\r\n{text}", text.len());
        match &mut self.adapter {
            Adapter::Started(child) => child.stdin.as_mut().unwrap().write_all(bytes.as_bytes()),
            Adapter::Connected(stream) => stream.write_all(bytes.as_bytes()),
        }
        .unwrap();
        self.seq
    }

    /// The body of the answer, which is good.
    #[track_caller]
    pub(crate) fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let seq = self.send(command, arguments);
        self.answer(seq)
    }

    #[track_caller]
    pub(crate) fn answer(&mut self, seq: i64) -> Value {
        let response = self.wait(|message| message["request_seq"] == seq);
        assert_eq!(response["success"], true, "{response}");
        response["body"].clone()
    }

    /// Why a request is refused.
    #[track_caller]
    pub(crate) fn refusal(&mut self, command: &str, arguments: Value) -> String {
        let seq = self.send(command, arguments);
        let response = self.wait(|message| message["request_seq"] == seq);
        assert_eq!(response["success"], false, "{response}");
        response["message"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn event(&mut self, name: &str) -> Value {
        self.wait(|message| message["event"] == name)["body"].clone()
    }

    /// The next stop, and its innermost frame.
    #[track_caller]
    pub(crate) fn stopped(&mut self, reason: &str) -> (Value, Value) {
        let stopped = self.event("stopped");
        assert_eq!(stopped["reason"], reason, "{stopped}");
        let thread = stopped["threadId"].clone();
        let stack = self.ask("stackTrace", json!({"threadId": thread}));
        (stopped, stack["stackFrames"][0].clone())
    }

    #[track_caller]
    fn wait(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.passed.iter().position(&is_it) {
            return self.passed.remove(at);
        }
        loop {
            let message = self.messages.recv_timeout(DEADLINE);
            let message =
                message.unwrap_or_else(|error| panic!("{error}; before: {:?}", self.passed));
            if is_it(&message) {
                return message;
            }
            self.passed.push(message);
        }
    }

    /// Local variables of a frame, by name.
    #[track_caller]
    pub(crate) fn locals(&mut self, frame: &Value) -> Value {
        let scopes = self.ask("scopes", json!({"frameId": frame["id"]}));
        let scope = scopes["scopes"][0]["variablesReference"].clone();
        let variables = self.children(&scope);
        let mut locals = json!({"reference": scope});
        for variable in variables {
            let name = variable["name"].as_str().unwrap().to_owned();
            locals[name] = variable;
        }
        locals
    }

    #[track_caller]
    pub(crate) fn children(&mut self, reference: &Value) -> Vec<Value> {
        let body = self.ask("variables", json!({"variablesReference": reference}));
        body["variables"].as_array().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn evaluate(&mut self, expression: &str, frame: &Value, context: &str) -> Value {
        let frame = &frame["id"];
        self.ask(
            "evaluate",
            json!({"expression": expression, "frameId": frame, "context": context}),
        )
    }

    /// Leaves, and waits for the end of the adapter's session.
    #[track_caller]
    pub(crate) fn leave(mut self) {
        self.ask("disconnect", json!({}));
        if let Adapter::Started(child) = &mut self.adapter {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        }
        while self.messages.recv_timeout(DEADLINE).is_ok() {}
    }

    /// Vanishes, and with it its adapter.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        // Already ended, or not: both are fine here.
        match &mut self.adapter {
            Adapter::Started(child) => {
                child.kill().ok();
                child.wait().ok();
            }
            Adapter::Connected(stream) => {
                stream.shutdown(Shutdown::Both).ok();
            }
        }
    }
}

fn messages(mut from: impl Read + Send + 'static) -> Receiver<Value> {
    let (sender, messages) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..length]);
            while let Some(message) = next_message(&mut bytes) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        }
    });
    messages
}

fn next_message(bytes: &mut Vec<u8>) -> Option<Value> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let header = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let length: usize = header.strip_prefix("Content-Length: ")?.parse().unwrap();
    let (begin, end) = (end + 4, end + 4 + length);
    let message = serde_json::from_slice(bytes.get(begin..end)?).unwrap();
    bytes.drain(..end);
    Some(message)
}
