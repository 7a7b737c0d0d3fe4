//! Helpers of these tests: a target and its copy without the probe, orders, evals and readings of `/proc`.
//!
//! What these tests share: a target and its twin without the probe, orders to it, evals over a bare connection, and
//! what `/proc` tells of its threads.

use std::fs;
use std::path::PathBuf;
use std::thread;

use probing_proto::message::{Call, Eval, Event, Message, Outcome, Request, RequestId};
use probing_proto::paths;
use probing_proto::process::{Pid, ProcessKey, Stat};
use probing_testkit::{EndedTarget, Python, RawClient, Sandbox, Target, wait_until};

pub(crate) fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_probing"))
}

/// Runs `test` on each Python, on all at the same time: for tests that wait more than they work.
pub(crate) fn all_pythons_at_once(test: impl Fn(&Python) + Sync) {
    let pythons = Python::all();
    let failed: Vec<String> = thread::scope(|scope| {
        let runs: Vec<_> = pythons
            .iter()
            .map(|python| (python, scope.spawn(|| test(python))))
            .collect();
        runs.into_iter()
            .filter_map(|(python, run)| run.join().err().map(|_| python))
            .map(|python| format!("{}.{}", python.version.0, python.version.1))
            .collect()
    });
    assert!(failed.is_empty(), "failed on Python {}", failed.join(", "));
}

/// A target that does what it is told, with the probe in it.
pub(crate) fn probed(sandbox: &Sandbox, python: &Python) -> Target {
    sandbox.probed(python, "commands.py")
}

/// The same program without the probe.
pub(crate) fn unprobed(sandbox: &Sandbox, python: &Python) -> Target {
    sandbox.target(python, "commands.py").start()
}

/// Has a target run a line of code in its main thread; gives what that printed.
#[track_caller]
pub(crate) fn order(target: &mut Target, code: &str) -> Vec<String> {
    target.say(code);
    let mut lines = Vec::new();
    loop {
        match target.line() {
            line if line == "done" => return lines,
            line => lines.push(line),
        }
    }
}

/// What a target's main thread has for an expression.
#[track_caller]
pub(crate) fn told(target: &mut Target, expression: &str) -> String {
    order(target, &format!("print({expression})")).join("\n")
}

/// Checks that a target ended well and printed nothing that the test has not read.
#[track_caller]
pub(crate) fn ended_in_silence(ended: EndedTarget) {
    let silence = EndedTarget {
        status: 0,
        stdout: Vec::new(),
        stderr: Vec::new(),
    };
    assert_eq!(ended, silence);
}

/// Where the probe of a process listens.
pub(crate) fn socket_of(sandbox: &Sandbox, pid: u32) -> PathBuf {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let key = ProcessKey {
        pid: Pid(pid),
        start_ticks: Stat::parse(&stat).unwrap().start_ticks,
    };
    paths::socket_path(&sandbox.runtime_dir(), key)
}

/// A connection to a target's probe.
pub(crate) fn client_of(sandbox: &Sandbox, target: &Target) -> RawClient {
    RawClient::greeted(&socket_of(sandbox, target.pid()))
}

/// Starts an eval and does not wait for its end.
pub(crate) fn ask(client: &mut RawClient, id: u64, code: &str) {
    client.send(&Request {
        id: RequestId(id),
        call: Call::Eval(Eval::of(code)),
    });
}

/// How an eval ended, and what it printed on the way.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) output: String,
    pub(crate) end: Event,
}

/// Waits for the end of the eval `id`.
#[track_caller]
pub(crate) fn answer(client: &mut RawClient, id: u64) -> Answer {
    let own = |message: &Message| message.id == Some(RequestId(id));
    let is_last = |message: &Message| {
        own(message) && matches!(message.event, Event::Evaluated(_) | Event::Failed(_))
    };
    let mut messages = client.receive_until(is_last);
    let end = messages.pop().unwrap().event;
    let output = messages
        .iter()
        .filter(|message| own(message))
        .filter_map(|message| match &message.event {
            Event::Output { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    Answer { output, end }
}

/// Runs code and gives its value.
#[track_caller]
pub(crate) fn value(client: &mut RawClient, code: &str) -> String {
    ask(client, 1, code);
    let answer = answer(client, 1);
    match &answer.end {
        Event::Evaluated(evaluated) => match &evaluated.outcome {
            Outcome::Finished { value } => value.clone().unwrap_or_default(),
            _ => panic!("{answer:?}"),
        },
        _ => panic!("{answer:?}"),
    }
}

/// A thread of a target, as the kernel sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) name: String,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    pub(crate) cpu_nanos: u64,
}

impl Thread {
    fn of(pid: u32, tid: u32) -> Option<Self> {
        let read = |file| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}")).ok();
        let status = read("status")?;
        let number = |name| field(&status, name)?.parse().ok();
        Some(Self {
            tid,
            name: field(&status, "Name:")?.to_owned(),
            voluntary_switches: number("voluntary_ctxt_switches:")?,
            involuntary_switches: number("nonvoluntary_ctxt_switches:")?,
            cpu_nanos: read("schedstat")?.split(' ').next()?.parse().ok()?,
        })
    }
}

/// The threads of a process. Those that end meanwhile are left out.
pub(crate) fn threads(pid: u32) -> Vec<Thread> {
    fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|tid| Thread::of(pid, tid))
        .collect()
}

/// The names of all threads but the main one.
pub(crate) fn extra_threads(pid: u32) -> Vec<String> {
    let mut names: Vec<String> = threads(pid)
        .into_iter()
        .filter(|thread| thread.tid != pid)
        .map(|thread| thread.name)
        .collect();
    names.sort();
    names
}

/// Waits until evals have left a target alone with its probe.
#[track_caller]
pub(crate) fn wait_until_idle(pid: u32) {
    wait_until("only the probe's thread is left", || {
        extra_threads(pid) == ["probing"]
    });
}

/// The thread of the probe. It names itself, so it may have another name at first.
#[track_caller]
pub(crate) fn probe_thread(pid: u32) -> Thread {
    let mut found = None;
    wait_until("there is a thread of the probe", || {
        found = threads(pid)
            .into_iter()
            .find(|thread| thread.name == "probing");
        found.is_some()
    });
    found.unwrap()
}

/// Waits until the main thread of a process sits in the system call `number`.
#[track_caller]
pub(crate) fn wait_until_in(pid: u32, number: i64) {
    let number = number.to_string();
    wait_until("the main thread is in that system call", || {
        let line = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
        line.split(' ').next() == Some(&number)
    });
}

/// Whether a process is there and not just waiting to be noticed.
pub(crate) fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Stat::parse(&stat).is_some_and(|stat| !stat.is_dead())
}

/// The value behind `name` in a file of `/proc`.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// A line of `/proc/<pid>/status`.
pub(crate) fn status_of(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    field(&status, name).unwrap().to_owned()
}
