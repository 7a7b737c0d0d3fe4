//! Children: each answers for itself, none for its parent, none hangs, and each cleans up after itself only.

use std::os::unix::net::UnixStream;
use std::thread;

use probing_testkit::{Python, RawClient, Sandbox, Target, every_python, wait_until};
use rustix::process::Signal;

use crate::host::{
    Answer, all_pythons_at_once, answer, ask, client_of, ended_in_silence, extra_threads, lives,
    order, probed, sandbox, socket_of, told, unprobed, value, wait_until_in,
};

/// The ways to have a child that copies its parent.
const FORKS: [&str; 2] = ["os.fork", "fork"];
/// All ways to have a child that is Python.
const WAYS: [&str; 4] = ["os.fork", "fork", "spawn", "subprocess"];

/// A target with a child.
struct Family {
    sandbox: Sandbox,
    parent: Target,
    child: u32,
}

impl Family {
    fn probed(python: &Python, way: &str) -> Self {
        Self::new(python, way, "1")
    }

    fn new(python: &Python, way: &str, probing: &str) -> Self {
        let sandbox = sandbox();
        let mut parent = sandbox
            .target(python, "forks.py")
            .arg(way)
            .env("PROBING", probing)
            .env("PYTHONWARNINGS", "default")
            .start_without_waiting();
        // In any order.
        let lines = [parent.line(), parent.line()];
        let child = lines.iter().find(|line| *line != "ready").unwrap();
        let child = child.strip_prefix("child ").unwrap().parse().unwrap();
        Self {
            sandbox,
            parent,
            child,
        }
    }

    #[track_caller]
    fn eval(&self, pid: u32, code: &str) -> String {
        value(
            &mut RawClient::greeted(&socket_of(&self.sandbox, pid)),
            code,
        )
    }
}

/// The processes that have a folder.
fn pids_with_folders(sandbox: &Sandbox) -> Vec<u32> {
    let mut pids: Vec<u32> = sandbox
        .target_dirs()
        .iter()
        .map(|name| name.split('.').next().unwrap().parse().unwrap())
        .collect();
    pids.sort_unstable();
    pids
}

#[test]
fn a_child_answers_for_itself() {
    all_pythons_at_once(|python| {
        for way in WAYS {
            let family = Family::probed(python, way);
            for pid in [family.child, family.parent.pid()] {
                let answer = family.eval(pid, "import os; os.getpid()");
                assert_eq!(answer, pid.to_string(), "{way}");
            }
            assert_eq!(family.parent.end().status, 0, "{way}");
        }
    });
}

#[test]
fn a_child_does_not_answer_for_its_dead_parent() {
    all_pythons_at_once(|python| {
        for way in ["os.fork", "fork", "fork in C"] {
            let sandbox = sandbox();
            let mut target = probed(&sandbox, python);
            // Before the fork: one client that waits for an answer, one that waits for nothing.
            let mut waiting = client_of(&sandbox, &target);
            let mut idle = client_of(&sandbox, &target);
            ask(&mut waiting, 1, "import time; time.sleep(3600)");
            let child = fork_by_order(&mut target, way);
            let socket = socket_of(&sandbox, target.pid());
            target.signal(Signal::KILL);
            assert_eq!(waiting.receive(), None, "{way}");
            assert_eq!(idle.receive(), None, "{way}");
            wait_until("nobody listens for the parent any more", || {
                UnixStream::connect(&socket).is_err()
            });
            assert!(lives(child), "{way}");
            drop(target.end());
            wait_until("the child ends, too", || !lives(child));
        }
    });
}

/// Has a target of orders fork; the child lives until the target's input ends.
fn fork_by_order(target: &mut Target, way: &str) -> u32 {
    order(
        target,
        "import ctypes, os, multiprocessing; life = os.dup(0)",
    );
    order(target, "child = lambda: (os.read(life, 1), os._exit(0))");
    let fork = match way {
        "fork" => {
            order(
                target,
                "worker = multiprocessing.get_context('fork').Process(target=child)",
            );
            "worker.start() or worker.pid"
        }
        "fork in C" => "ctypes.PyDLL(None).fork() or child()",
        _ => "os.fork() or child()",
    };
    let child = told(target, fork).parse().unwrap();
    wait_until_in(child, libc::SYS_read);
    child
}

#[test]
fn each_process_removes_its_own_files_only() {
    all_pythons_at_once(|python| {
        let family = Family::probed(python, "os.fork");
        let (child, parent) = (family.child, family.parent.pid());
        let mut both = [child, parent];
        both.sort_unstable();
        assert_eq!(pids_with_folders(&family.sandbox), both);

        // The child goes first.
        family.eval(child, "over = True");
        wait_until("the child has ended", || !lives(child));
        assert_eq!(pids_with_folders(&family.sandbox), [parent]);
        assert_eq!(family.eval(parent, "role"), "'parent'");

        // The parent goes first.
        let family = Family::probed(python, "os.fork");
        let (child, parent) = (family.child, family.parent.pid());
        family.eval(parent, "end = int; over = True");
        wait_until("the parent has ended", || !lives(parent));
        assert_eq!(pids_with_folders(&family.sandbox), [child]);
        assert_eq!(family.eval(child, "role"), "'child'");
    });
}

#[test]
fn children_that_end_without_ado_are_swept() {
    all_pythons_at_once(|python| {
        // A worker of multiprocessing ends by `os._exit`.
        for way in ["fork", "spawn"] {
            let family = Family::probed(python, way);
            assert_eq!(family.parent.end().status, 0, "{way}");
            assert_eq!(family.sandbox.probing(["list"]).status, 0);
            assert_eq!(family.sandbox.target_dirs(), [""; 0], "{way}");
        }
    });
}

#[test]
fn a_fork_prints_no_warning_because_of_the_probe() {
    all_pythons_at_once(|python| {
        for way in FORKS {
            // From 3.12 on Python warns when a process with more than one thread forks.
            let with = Family::new(python, way, "1").parent.end();
            let without = Family::new(python, way, "0").parent.end();
            assert_eq!(with, without, "{way}");
        }
    });
}

#[test]
fn a_fork_inside_an_eval_gives_a_child_that_ends() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let mut client = client_of(&sandbox, &target);
        let child: u32 = value(
            &mut client,
            "import os\npid = os.fork()\nif not pid: print('from the child', flush=True)\npid",
        )
        .parse()
        .unwrap();
        value(&mut client, "os.waitpid(pid, 0)");
        assert!(!lives(child));
        assert_eq!(pids_with_folders(&sandbox), [target.pid()]);
        let ended = target.end();
        assert_eq!(
            (ended.status, ended.stdout),
            (0, vec!["from the child".to_owned()])
        );
    });
}

#[test]
fn a_fork_inside_an_eval_gives_a_child_with_its_own_probe() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let mut client = client_of(&sandbox, &target);
        let code = "import os, sys\nheld = os.pipe()\npid = os.fork()\nif not pid:\n    os.close(held[1])\n    os.read(held[0], 1)\npid";
        let child: u32 = value(&mut client, code).parse().unwrap();
        let mut to_child = wait_for_probe(&sandbox, child);
        assert_eq!(value(&mut to_child, "os.getpid()"), child.to_string());
        assert_eq!(value(&mut client, "os.getpid()"), target.pid().to_string());
        value(&mut client, "os.close(held[1]), os.waitpid(pid, 0)");
        ended_in_silence(target.end());
    });
}

/// A connection to the probe of a process that has just been born.
fn wait_for_probe(sandbox: &Sandbox, pid: u32) -> RawClient {
    let socket = socket_of(sandbox, pid);
    wait_until("the child's probe listens", || {
        UnixStream::connect(&socket).is_ok()
    });
    RawClient::greeted(&socket)
}

#[test]
fn a_child_prints_to_its_own_streams_while_the_parents_evals_run() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        let mut client = client_of(&sandbox, &target);
        ask(
            &mut client,
            1,
            "running = True\nimport time\nwhile running: time.sleep(0.001)\nprint('to the client')",
        );
        wait_until("the eval runs", || {
            told(&mut target, "'running' in globals()") == "True"
        });
        order(&mut target, "import os");
        let lines = order(
            &mut target,
            "child = os.fork(); child or (print('from the child', type(sys.stdout.write).__name__, flush=True), os._exit(0)); os.waitpid(child, 0)",
        );
        assert_eq!(lines, ["from the child builtin_function_or_method"]);
        order(&mut target, "running = False");
        let Answer { output, .. } = answer(&mut client, 1);
        assert_eq!(output, "to the client\n");
        let ended = target.end();
        assert_eq!((ended.status, ended.stdout), (0, vec![]));
    });
}

#[test]
fn no_child_hangs_when_forks_and_evals_come_together() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        order(
            &mut target,
            "import os, warnings; warnings.simplefilter('ignore')",
        );
        let mut clients: Vec<RawClient> = (0..3).map(|_| client_of(&sandbox, &target)).collect();
        for client in &mut clients {
            ask(client, 1, "while True: print('x' * 100)");
        }
        let ends = "print([os.waitpid(pid, 0)[1] for pid in pids])";
        order(
            &mut target,
            "pids = [os.fork() or sys.exit(0) for _ in range(30)]",
        );
        assert_eq!(order(&mut target, ends), [format!("{:?}", [0; 30])]);
        assert_eq!(pids_with_folders(&sandbox), [target.pid()]);
        drop(clients);
        let ended = target.end();
        assert_eq!((ended.status, ended.stdout), (0, vec![]));
    });
}

#[test]
fn clients_of_a_program_that_forks_are_served_on() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        let (mut idle, mut busy) = (client_of(&sandbox, &target), client_of(&sandbox, &target));
        order(
            &mut target,
            "import os, warnings; warnings.simplefilter('ignore')",
        );
        thread::scope(|scope| {
            scope.spawn(|| (0..100).for_each(|_| assert_eq!(value(&mut busy, "loss"), "0.25")));
            let fork = "[os.waitpid(os.fork() or os._exit(0), 0) for _ in range(20)]";
            order(&mut target, fork);
        });
        assert_eq!(value(&mut idle, "loss"), "0.25");
        ended_in_silence(target.end());
    });
}

#[test]
fn a_program_that_becomes_another_python_has_a_new_probe() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        let mut client = client_of(&sandbox, &target);
        value(&mut client, "secret = 'of the first life'");
        target.say("import os; os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])");
        assert_eq!(target.line(), "ready");
        assert_eq!(client.receive(), None);
        let mut client = client_of(&sandbox, &target);
        assert_eq!(value(&mut client, "'secret' in globals()"), "False");
        ended_in_silence(target.end());
        assert_eq!(sandbox.target_dirs(), [""; 0]);
    });
}

#[test]
fn a_program_that_becomes_something_else_has_no_probe() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        let mut client = client_of(&sandbox, &target);
        target.say("import os; os.execvp('cat', ['cat'])");
        assert_eq!(client.receive(), None);
        target.say("meow");
        assert_eq!(target.line(), "meow");
        let ran = sandbox.eval(&target, "1");
        assert_eq!(ran.status, 3, "{ran:?}");
        assert!(ran.stderr.contains("only its socket is left"), "{ran:?}");
        ended_in_silence(target.end());
        assert_eq!(sandbox.probing(["list"]).status, 0);
        assert_eq!(sandbox.target_dirs(), [""; 0]);
    });
}

#[test]
fn children_of_a_program_that_never_asked_have_no_probe() {
    all_pythons_at_once(|python| {
        for way in WAYS {
            let family = Family::new(python, way, "0");
            assert_eq!(extra_threads(family.child), [""; 0], "{way}");
            assert_eq!(family.sandbox.target_dirs(), [""; 0], "{way}");
            ended_in_silence(family.parent.end());
        }
    });
}

#[test]
fn after_a_detach_forked_children_have_no_probe() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        let ran = sandbox.probing(["-t", &target.pid().to_string(), "detach"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        let child = fork_by_order(&mut target, "os.fork");
        assert_eq!(extra_threads(child), [""; 0]);
        assert_eq!(sandbox.target_dirs(), [""; 0]);
        ended_in_silence(target.end());
    });
}

#[test]
fn what_the_program_starts_inherits_no_file_of_ours() {
    every_python(|python| {
        let sandbox = sandbox();
        let (mut with, mut without) = (probed(&sandbox, python), unprobed(&sandbox, python));
        let client = client_of(&sandbox, &with);
        let [seen, expected] = [&mut with, &mut without].map(|target| {
            order(target, "import subprocess");
            let open = "subprocess.run(['ls', '/proc/self/fd'], stdout=subprocess.PIPE, close_fds=False).stdout";
            told(target, open)
        });
        assert_eq!(seen, expected);
        drop(client);
    });
}
