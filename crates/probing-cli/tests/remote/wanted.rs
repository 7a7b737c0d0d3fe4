//! `PROBING_PORT`: the program starts its node's agent, and is not touched by it.

use std::fs;
use std::net::TcpListener;

use probing_proto::process::Stat;
use probing_testkit::{Python, Sandbox, Target, every_python, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::sandbox;

/// A port that nobody has now. Who takes it in the meantime is told of by the test that fails.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn start(sandbox: &Sandbox, python: &Python, program: &str, port: &str) -> Target {
    let target = sandbox.target(python, program).env("PROBING_PORT", port);
    target
        .env("XDG_STATE_HOME", sandbox.path().join("state"))
        .start()
}

/// What the agent on that port says of itself.
fn state(sandbox: &Sandbox, port: u16) -> Option<Value> {
    let path = sandbox.runtime_dir().join(format!("agents/{port}.json"));
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// The agent on that port, if it lives. One that was killed may be listed until its parent notices.
fn agent_pid(sandbox: &Sandbox, port: u16) -> Option<i32> {
    let pid = state(sandbox, port)?["pid"].as_i64()? as i32;
    is_alive(pid).then_some(pid)
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Stat::parse(&stat).is_some_and(|stat| !stat.is_dead())
}

/// Ends an agent that is no child of ours.
struct Detached(i32);

impl Detached {
    fn wait_for(sandbox: &Sandbox, port: u16) -> Self {
        wait_until("the agent is there", || agent_pid(sandbox, port).is_some());
        Self(agent_pid(sandbox, port).unwrap())
    }

    fn kill(&self) {
        // It may have ended already.
        kill_process(Pid::from_raw(self.0).unwrap(), Signal::KILL).ok();
        wait_until("the agent has ended", || !is_alive(self.0));
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        kill_process(Pid::from_raw(self.0).unwrap(), Signal::KILL).ok();
    }
}

#[test]
fn a_program_starts_the_agent_of_its_node_and_others_join_it() {
    every_python(|python| {
        let sandbox = sandbox();
        let port = free_port();
        let listen = format!("127.0.0.1:{port}");
        let first = start(&sandbox, python, "children.py", &listen);
        let agent = Detached::wait_for(&sandbox, port);
        let second = start(&sandbox, python, "idle.py", &listen);
        let shown = sandbox.probing(["-t", &listen, "list", "--json"]).json();
        let mut pids: Vec<u64> = shown
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["pid"].as_u64().unwrap())
            .collect();
        pids.sort_unstable();
        let mut expected = [u64::from(first.pid()), u64::from(second.pid())];
        expected.sort_unstable();
        assert_eq!(pids, expected);
        assert_eq!(agent_pid(&sandbox, port), Some(agent.0));
        // It is nobody's child here, has no terminal, no files of the program's and a session of its own.
        let status = fs::read_to_string(format!("/proc/{}/status", agent.0)).unwrap();
        assert!(
            !status.contains(&format!("PPid:\t{}\n", first.pid())),
            "{status}"
        );
        for file in 0..3 {
            let link = fs::read_link(format!("/proc/{}/fd/{file}", agent.0)).unwrap();
            assert_eq!(link.display().to_string(), "/dev/null");
        }
        let session = |pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit(')')
                .next()
                .unwrap()
                .split_whitespace()
                .nth(3)
                .unwrap()
                .to_owned()
        };
        assert_ne!(session(agent.0 as u32), session(first.pid()));
        let environ = fs::read(format!("/proc/{}/environ", agent.0)).unwrap();
        assert!(!String::from_utf8_lossy(&environ).contains("PYTHON"));
        // The program has seen no child of its own, and no signal of one.
        let pid = first.pid().to_string();
        let seen = sandbox.probing(["-t", &pid, "eval", "seen()"]);
        assert_eq!(seen.ok(), "([], 'no children')\n");
        // Killed, it comes back with the next command; the job goes on.
        agent.kill();
        let again = sandbox.probing(["list"]);
        assert_eq!(again.status, 0);
        let agent = Detached::wait_for(&sandbox, port);
        wait_until("the agent answers", || {
            sandbox
                .probing(["-t", &format!("{listen}/{pid}"), "eval", "6 * 7"])
                .stdout
                == "42\n"
        });
        // Or with the next program.
        agent.kill();
        let third = start(&sandbox, python, "idle.py", &listen);
        let agent = Detached::wait_for(&sandbox, port);
        for target in [first, second, third] {
            let ended = target.end();
            assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
        }
        drop(agent);
    });
}

#[test]
fn a_port_that_is_taken_is_told_by_list_and_the_program_runs() {
    every_python(|python| {
        let sandbox = sandbox();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let target = start(&sandbox, python, "idle.py", &format!("127.0.0.1:{port}"));
        wait_until("the agent has said what is wrong", || {
            state(&sandbox, port).is_some()
        });
        let listed = sandbox.probing(["list"]);
        assert_eq!(listed.status, 0);
        let expected = format!(
            "note: no agent on port {port}: cannot listen on 127.0.0.1:{port}: Address already in use"
        );
        assert!(listed.stderr.starts_with(&expected), "{listed:?}");
        assert_eq!(sandbox.eval(&target, "6 * 7").ok(), "42\n");
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    });
}

#[test]
fn a_port_that_is_none_is_told_by_list_and_the_program_runs() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = start(&sandbox, python, "idle.py", "eighty");
        let listed = sandbox.probing(["list"]);
        let pid = target.pid();
        let expected = format!(
            "note: no agent for PROBING_PORT=eighty of process {pid}: an agent listens on a port"
        );
        assert_eq!(listed.status, 0);
        assert!(listed.stderr.contains(&expected), "{listed:?}");
        assert_eq!(sandbox.eval(&target, "6 * 7").ok(), "42\n");
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    });
}

#[test]
fn an_agent_ends_when_nobody_needs_it_and_when_it_is_told_to() {
    let sandbox = sandbox();
    let python = Python::all().into_iter().next_back().unwrap();
    // Nobody is there from the beginning.
    let idle = ["--listen", "127.0.0.1:0", "--idle", "100ms"];
    let mut agent = Agent::with(&sandbox, &idle, |_| {});
    let port = agent.address.port();
    assert_eq!(agent.process.line(), "idle: no target and no client");
    assert_eq!(agent.process.wait().status, 0);
    assert_eq!(state(&sandbox, port), None);
    // As long as a target lives it stays, however long nobody asks it anything.
    let target = sandbox.probed(&python, "idle.py");
    let mut agent = Agent::with(&sandbox, &idle, |_| {});
    let woken = || agent.process.usage().voluntary_switches;
    let before = woken();
    wait_until("it has looked around several times", || {
        woken() > before + 10
    });
    let targets = agent.get("/targets").json();
    assert_eq!(targets["targets"][0]["pid"], target.pid());
    drop(target);
    assert_eq!(agent.process.line(), "idle: no target and no client");
    for signal in [Signal::TERM, Signal::INT] {
        let agent = Agent::start(&sandbox);
        let port = agent.address.port();
        assert!(state(&sandbox, port).is_some());
        // From the first answer on it listens to signals, too.
        assert_eq!(agent.bare("GET /health", &[], "").status, 200);
        agent.process.signal(signal);
        assert_eq!(agent.process.wait().status, 0, "{signal:?}");
        assert_eq!(state(&sandbox, port), None);
    }
}

#[test]
fn for_other_machines_it_wants_token_and_tls_by_itself() {
    let (here, there) = (sandbox(), sandbox());
    let python = Python::all().into_iter().next_back().unwrap();
    let (port, token) = (free_port(), "a token that nobody guesses");
    let target = there
        .target(&python, "idle.py")
        .env("PROBING_PORT", port.to_string());
    let target = target.env("PROBING_TOKEN", token).start();
    let _agent = Detached::wait_for(&there, port);
    let state = state(&there, port).unwrap();
    assert_eq!(state["listen"], format!("0.0.0.0:{port}"));
    assert!(
        state["fingerprint"]
            .as_str()
            .unwrap()
            .starts_with("sha256:"),
        "{state}"
    );
    let mut command = here.command();
    command.args(["-t", &format!("127.0.0.1:{port}"), "eval", "6 * 7"]);
    command
        .env("PROBING_TOKEN", token)
        .env("PROBING_ACCEPT_NEW", "1")
        .env("XDG_STATE_HOME", here.path().join("state"));
    let ran = probing_testkit::CommandResult::to_the_end(command);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "42\n"), "{ran:?}");
    // The token is no secret to whoever may ask for variables by SQL, unless it is kept from them.
    let sql = "SELECT value FROM process.envs WHERE name = 'PROBING_TOKEN'";
    let rows = there
        .probing(["-t", &target.pid().to_string(), "query", "--json", sql])
        .json();
    assert!(!rows.to_string().contains(token), "{rows}");
    assert_eq!(rows.as_array().unwrap().len(), 1, "{}", json!(rows));
    drop(target);
}
