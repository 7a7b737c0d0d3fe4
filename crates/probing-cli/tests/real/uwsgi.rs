//! uWSGI: workers that a master forks, with threads that uWSGI made.

use std::io::{Read as _, Write as _};
use std::iter;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::process::Signal;

use crate::program::{Program, python, sandbox, source, tool};
use crate::walk::{Known, Walk};

const WORKERS: usize = 2;
const BODY: &str = "100: 328350\n";

fn uwsgi(folder: &Path) -> Command {
    let home = python();
    let mut command = Command::new(tool("uwsgi"));
    command
        .arg("--http-socket")
        .arg(folder.join("socket"))
        .args(["--master", "--die-on-term", "--disable-logging"])
        .args(["--processes", &WORKERS.to_string(), "--threads", "3"])
        .arg("--wsgi-file")
        .arg(source("uwsgi_app.py"))
        .arg("--pythonpath")
        .arg(source(""))
        .arg("--virtualenv")
        .arg(home.ancestors().nth(2).unwrap());
    command
}

/// Where it listens.
fn address(program: &Program) -> PathBuf {
    program.sandbox.path().join("socket")
}

/// The body of an answer.
fn get(address: &Path) -> String {
    let mut stream = UnixStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(probing_testkit::DEADLINE))
        .unwrap();
    stream.write_all(b"GET /?100 HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{answer}"));
    body.to_owned()
}

/// Requests, one after the other and on several connections, for as long as it lives: both workers have some.
struct Traffic {
    over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Traffic {
    fn start(address: &Path) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (over, address) = (Arc::clone(&over), address.to_owned());
            thread::spawn(move || {
                let mut bodies = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    bodies.push(get(&address));
                    bodies.dedup();
                }
                bodies
            })
        };
        let clients = (0..4).map(client).collect();
        Self { over, clients }
    }

    /// What was answered, each once.
    fn end(self) -> Vec<String> {
        self.over.store(true, Ordering::Relaxed);
        let bodies = self
            .clients
            .into_iter()
            .flat_map(|client| client.join().unwrap());
        let mut bodies: Vec<String> = bodies.collect();
        bodies.sort();
        bodies.dedup();
        bodies
    }
}

#[test]
#[ignore = "make real"]
fn workers_of_uwsgi_with_threads_are_debugged_and_answer_the_same() {
    let serve = || {
        let sandbox = sandbox();
        let command = uwsgi(sandbox.path());
        Program::start(sandbox, command, WORKERS)
    };
    // A worker of uWSGI's that misses the signal is killed after a minute, now and then also where nobody looks.
    let ends = || {
        let mut plain = serve();
        assert_eq!(get(&address(&plain)), BODY);
        plain.signal(Signal::TERM);
        plain.end()
    };
    let mut all = iter::repeat_with(ends).take(5);
    let alone = all.find(|end| !end.words.iter().any(|word| word.contains("NO MERCY")));
    let alone = alone.unwrap();

    let mut program = serve();
    let traffic = Traffic::start(&address(&program));
    let known = Known {
        ranks: false,
        around: None,
        function: "application",
        local: ("environ['QUERY_STRING']", "'100'"),
        trains: false,
        keeps_rows: true,
    };
    let walked = Walk::through(&program, &known);
    assert_eq!(traffic.end(), [BODY]);
    program.signal(Signal::TERM);
    walked.ends(&program.end(), &alone);
}
