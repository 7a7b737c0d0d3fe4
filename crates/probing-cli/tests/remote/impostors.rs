//! Somebody else in the place of an agent or of a probe: another user of this machine, for real.
#![expect(clippy::print_stderr, reason = "says what was left out")]

use std::fs::{self, DirBuilder, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use probing_proto::process::{Pid, ProcessKey, Stat};
use probing_testkit::{CommandResult, Python, every_python};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

use crate::agent::Agent;
use crate::sandbox;

/// Another user.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("left out: only root can be two users");
    }
    is_root
}

/// Does something as another user, on a thread that is nobody else's from then on.
fn as_nobody<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let nobody = Uid::from_raw(NOBODY);
        set_thread_res_uid(nobody, nobody, nobody).unwrap();
        sender.send(work()).ok();
    });
    receiver.recv().unwrap()
}

/// Somebody who listens on a port of this machine as another user, and writes down what is said.
struct Rogue {
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Rogue {
    /// None where the machine has no such address.
    fn at(address: String) -> Option<Self> {
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let into = Arc::clone(&heard);
        let (bound, is_bound) = mpsc::channel();
        thread::spawn(move || {
            let nobody = Uid::from_raw(NOBODY);
            set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let listener = TcpListener::bind(&address);
            bound.send(listener.is_ok()).ok();
            for stream in listener.into_iter().flat_map(|listener| {
                // It lives as long as the test.
                Box::leak(Box::new(listener)).incoming()
            }) {
                let (mut stream, mut buffer) = (stream.unwrap(), [0; 4096]);
                let length = stream.read(&mut buffer).unwrap_or(0);
                into.lock().unwrap().extend(&buffer[..length]);
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
                stream.write_all(answer.as_bytes()).ok();
            }
        });
        is_bound.recv().unwrap().then_some(Self { heard })
    }

    fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).into_owned()
    }
}

#[test]
fn a_listener_on_the_agents_port_of_another_address_never_learns_the_token() {
    if !is_root() {
        return;
    }
    let sandbox = sandbox();
    let agent = Agent::start(&sandbox);
    let port = agent.address.port();
    let ask = |host: &str, variables: &[(&str, &str)]| {
        let mut command = sandbox.command();
        command
            .args(["-t", &format!("{host}:{port}"), "list"])
            .env("XDG_STATE_HOME", sandbox.path().join("state"))
            .env_remove("PROBING_TOKEN")
            .env_remove("PROBING_TLS");
        command.envs(variables.iter().copied());
        CommandResult::to_the_end(command)
    };
    let mut rogues = Vec::new();
    for host in ["127.0.0.2", "[::1]"] {
        let Some(rogue) = Rogue::at(format!("{host}:{port}")) else {
            eprintln!("left out: this machine has no {host}");
            continue;
        };
        // By itself, a command takes only its own agent for its own.
        let none = ask(host, &[]);
        assert_eq!(none.status, 3, "{none:?}");
        assert!(
            none.stderr.starts_with("error: no token for the agent at "),
            "{none:?}"
        );
        assert_eq!(rogue.heard(), "", "{host}");
        // Whoever means the agent, and names the wrong address.
        let token = ("PROBING_TOKEN", agent.token.as_str());
        let plain = ask(host, &[token, ("PROBING_TLS", "off")]);
        assert_eq!(plain.status, 3, "{plain:?}");
        let words = format!(
            "error: plain text refused: the listener at {host}:{port} belongs to uid {NOBODY}\nhint: "
        );
        assert!(plain.stderr.starts_with(&words), "{plain:?}");
        let secret = ask(host, &[token, ("PROBING_ACCEPT_NEW", "1")]);
        assert_eq!(secret.status, 3, "{secret:?}");
        assert!(
            !rogue.heard().contains(&agent.token),
            "{host}: {}",
            rogue.heard()
        );
        assert!(!rogue.heard().contains("HTTP"), "{host}: {}", rogue.heard());
        rogues.push(rogue);
    }
    assert!(!rogues.is_empty());
    // One of the addresses of this name is the rogue's, another the agent's: its own socket is asked.
    let before: Vec<String> = rogues.iter().map(Rogue::heard).collect();
    assert_eq!(ask("localhost", &[]).status, 0);
    assert_eq!(ask("127.0.0.1", &[]).status, 0);
    let after: Vec<String> = rogues.iter().map(Rogue::heard).collect();
    assert_eq!(before, after);
    let lines = Agent::whole_audit(&sandbox);
    let from: Vec<&str> = lines
        .iter()
        .map(|line| line["from"].as_str().unwrap())
        .collect();
    assert_eq!(from, ["local socket, uid 0"; 2]);
}

/// A process of another user, whose private folder is where it likes.
struct Theirs {
    process: Child,
    folder: PathBuf,
    key: ProcessKey,
}

impl Theirs {
    fn start(folder: &Path) -> Self {
        DirBuilder::new().mode(0o700).create(folder).unwrap();
        lchown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        let process = Command::new("cat")
            .uid(NOBODY)
            .env("PROBING_DIR", folder)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            folder: folder.to_owned(),
            key: key_of(process.id()),
            process,
        }
    }

    /// Where the socket of its probe would be.
    fn own(&self) -> PathBuf {
        self.folder.join(self.key.to_string())
    }

    fn make_own(&self) {
        DirBuilder::new().mode(0o700).create(self.own()).unwrap();
        lchown(self.own(), Some(NOBODY), Some(NOBODY)).unwrap();
    }

    fn link(to: &Path, at: &Path) {
        symlink(to, at).unwrap();
        lchown(at, Some(NOBODY), Some(NOBODY)).unwrap();
    }

    fn remove_own(&self) {
        if fs::remove_file(self.own()).is_err() {
            fs::remove_dir_all(self.own()).unwrap();
        }
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn key_of(pid: u32) -> ProcessKey {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    ProcessKey {
        pid: Pid(pid),
        start_ticks: Stat::parse(&stat).unwrap().start_ticks,
    }
}

#[test]
fn nothing_in_a_users_folder_leads_a_command_into_another_process() {
    if !is_root() {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        let root = sandbox.probed(python, "idle.py");
        let folder = sandbox.runtime_dir().join(key_of(root.pid()).to_string());
        // The folder of another user has to be where that user can go.
        fs::set_permissions(sandbox.path(), Permissions::from_mode(0o755)).unwrap();
        let theirs = Theirs::start(&sandbox.path().join("theirs"));
        let refused = |what: &str, expected: &str| {
            let socket = theirs.own().join("probe.sock");
            let names = [
                theirs.key.pid.to_string(),
                format!("unix:{}", socket.display()),
            ];
            for name in names {
                let ran = sandbox.probing(["-t", &name, "eval", "noticed = True"]);
                assert_eq!(ran.status, 3, "{what}, {name}: {ran:?}");
                assert!(
                    expected.split('|').any(|words| ran.stderr.contains(words)),
                    "{what}, {name}: {ran:?}"
                );
            }
            theirs.remove_own();
        };
        Theirs::link(&folder, &theirs.own());
        refused(
            "a link to the folder of a process of root's",
            "a symbolic link where a private folder belongs|the socket leads to another process",
        );
        theirs.make_own();
        Theirs::link(&folder.join("probe.sock"), &theirs.own().join("probe.sock"));
        refused(
            "a link to its socket",
            "a symbolic link where a socket belongs",
        );
        theirs.make_own();
        fs::hard_link(folder.join("probe.sock"), theirs.own().join("probe.sock")).unwrap();
        refused(
            "its socket by another name",
            "socket belongs to uid 0, not to uid 65534|the socket leads to another process",
        );
        // Another process of that user in the place of the one that was meant.
        theirs.make_own();
        let socket = theirs.own().join("probe.sock");
        let _listener = as_nobody(move || UnixListener::bind(socket).unwrap());
        let ran = sandbox.probing(["-t", &theirs.key.pid.to_string(), "eval", "1"]);
        assert_eq!(ran.status, 3, "{ran:?}");
        let (own, meant) = (std::process::id(), theirs.key.pid);
        let words = format!(
            "error: the socket leads to another process: process {own} of uid {NOBODY} listens there, not process {meant} of uid {NOBODY}: "
        );
        assert!(ran.stderr.starts_with(&words), "{ran:?}");
        let noticed = sandbox.eval(&root, "'noticed' in globals()");
        assert_eq!(noticed.ok(), "False\n");
    });
}

#[test]
fn a_probe_that_says_to_be_another_process_is_refused() {
    let sandbox = sandbox();
    let python = Python::all().into_iter().next_back().unwrap();
    let target = sandbox.probed(&python, "idle.py");
    let other = sandbox.probed(&python, "idle.py");
    let folder = |pid: u32| sandbox.runtime_dir().join(key_of(pid).to_string());
    // Moved by whoever may: both are of the same user.
    let (mine, theirs) = (folder(target.pid()), folder(other.pid()));
    fs::rename(theirs.join("probe.sock"), mine.join("probe.sock")).unwrap();
    let ran = sandbox.eval(&target, "noticed = True");
    assert_eq!(ran.status, 3, "{ran:?}");
    assert!(
        ran.stderr
            .starts_with("error: the socket leads to another process: "),
        "{ran:?}"
    );
    fs::rename(mine.join("probe.sock"), theirs.join("probe.sock")).unwrap();
    assert_eq!(
        sandbox.eval(&other, "'noticed' in globals()").ok(),
        "False\n"
    );
}
