//! Captures that a process writes itself, where `PROBING_CAPTURE_DIR` asks for them.
#![expect(clippy::print_stderr, reason = "says what was left out")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use probing_testkit::{CommandResult, Python, Sandbox, Target, every_python, root, wait_until};
use rustix::process::Signal;

use crate::sandbox;

/// The line of `kept.py` that carries this mark.
fn place(mark: &str) -> String {
    let source = fs::read_to_string(root().join("tests/targets/kept.py")).unwrap();
    let mark = format!("# @{mark}");
    let line = source.lines().position(|line| line.ends_with(&mark));
    format!("kept.py:{}", line.unwrap() + 1)
}

/// A program that writes captures of its stops, and where to.
struct Keeper {
    sandbox: Sandbox,
    folder: PathBuf,
    target: Target,
}

impl Keeper {
    fn start(python: &Python) -> Self {
        let sandbox = sandbox();
        let folder = sandbox.path().join("kept");
        let target = sandbox
            .target(python, "kept.py")
            .env("PROBING", "1")
            .env("PROBING_CAPTURE_DIR", &folder)
            .start();
        Self {
            sandbox,
            folder,
            target,
        }
    }

    fn probing(&self, arguments: &[&str]) -> CommandResult {
        let pid = self.target.pid().to_string();
        let ran = self.sandbox.probing([&["-t", &pid], arguments].concat());
        assert_eq!(ran.status, 0, "{ran:?}");
        ran
    }

    /// Stops that nobody comes to, at a line and where nothing catches an exception.
    fn arm(&self) {
        for arm in [&[place("worked").as_str()][..], &["--uncaught"]] {
            self.probing(&[&["break"], arm, &["--stop-timeout", "0.05"]].concat());
        }
    }

    /// Ends with the exception that nobody catches.
    fn end(mut self) -> (Sandbox, PathBuf) {
        self.target.say("end");
        let ended = self.target.end();
        assert_eq!(ended.status, 1, "{ended:?}");
        // Nothing is left to look into but what was captured.
        assert_eq!(self.sandbox.probing(["clean"]).status, 0);
        (self.sandbox, self.folder)
    }
}

/// What a capture answers.
fn asked(sandbox: &Sandbox, capture: &Path, arguments: &[&str]) -> String {
    let ran = sandbox.probing([&["-t", capture.to_str().unwrap()], arguments].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(!ran.stderr.contains("warning"), "{ran:?}");
    ran.stdout
}

fn rows(sandbox: &Sandbox, capture: &Path, sql: &str) -> String {
    asked(sandbox, capture, &["query", "--csv", sql])
}

fn with_ending(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension() == Some(OsStr::new(ending)))
        .collect()
}

#[test]
fn a_stop_that_timed_out_and_an_uncaught_exception_leave_a_capture() {
    every_python(|python| {
        let mut keeper = Keeper::start(python);
        keeper.arm();
        keeper.probing(&["watch", "work:rate"]);
        keeper.probing(&["break", &place("rate"), "--action", "log:step {step}"]);
        let pid = keeper.target.pid();
        keeper.target.say("3");
        assert_eq!(keeper.target.line(), "0.125");
        let (sandbox, folder) = keeper.end();
        let capture = |stop: u32| folder.join(format!("{pid}-stop-{stop}.probe"));
        let (expired, uncaught) = (capture(1), capture(2));
        let mode = fs::metadata(&expired).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "values of variables are in it");
        for capture in [&expired, &uncaught] {
            let ask = |sql: &str| rows(&sandbox, capture, sql);
            let loss = ask("SELECT pid, step, value, name FROM loss ORDER BY step");
            let row =
                |step: u32, value: f64| format!("{pid},{step},{value},a name that is not short\n");
            let expected = [row(0, 0.5), row(1, 0.25), row(2, 0.125)].concat();
            assert_eq!(loss, format!("pid,step,value,name\n{expected}"));
            let logged = ask("SELECT text FROM python.captures WHERE kind = 'log' ORDER BY ts");
            assert_eq!(logged, "text\nstep 0\nstep 1\nstep 2\n");
            let written = ask("SELECT name, new, func FROM python.variables ORDER BY ts");
            let changes =
                "name,new,func\nrate,1.0,work\nrate,0.5,work\nrate,0.25,work\nrate,0.125,work\n";
            assert_eq!(written, changes);
            let tables = ask("SHOW TABLES");
            for table in ["user.loss", "python.captures", "python.backtrace"] {
                assert!(tables.contains(&format!("\n{table},")), "{tables}");
            }
            assert!(ask("DESCRIBE loss").contains("value,number"));
            let armed = ask("SELECT kind, action FROM python.breakpoints ORDER BY point LIMIT 2");
            assert_eq!(armed, "kind,action\nline,stop\nuncaught,stop\n");
            assert!(ask("SELECT command FROM process.info").contains("kept.py"));
        }
        let exceptions = "SELECT exception, message FROM python.exceptions";
        assert_eq!(rows(&sandbox, &expired, exceptions), "exception,message\n");
        let raised = rows(&sandbox, &uncaught, exceptions);
        assert_eq!(raised, "exception,message\nValueError,it ends here\n");
    });
}

#[test]
fn it_shows_stacks_variables_and_source() {
    every_python(|python| {
        let mut keeper = Keeper::start(python);
        keeper.arm();
        let pid = keeper.target.pid();
        keeper.target.say("3");
        assert_eq!(keeper.target.line(), "0.125");
        let (sandbox, folder) = keeper.end();
        let capture = |stop: u32| folder.join(format!("{pid}-stop-{stop}.probe"));
        let backtrace = asked(&sandbox, &capture(1), &["backtrace", "--all", "--locals"]);
        for part in [
            "MainThread",
            "in work",
            "rate = 0.125",
            "return rate  # @worked",
        ] {
            assert!(backtrace.contains(part), "{backtrace}");
        }
        let sql = "SELECT func, source FROM python.backtrace WHERE depth = 0";
        let innermost = rows(&sandbox, &capture(1), sql);
        assert_eq!(innermost, "func,source\nwork,return rate  # @worked\n");
        let debugged = |stop: u32, shown: &str, reason: &str| {
            let path = capture(stop);
            let ran = sandbox.probing(["-t", path.to_str().unwrap(), "debug"]);
            assert_eq!(ran.status, 0, "{ran:?}");
            assert!(ran.stdout.contains(shown), "{ran:?}");
            let reason = format!("stop {stop}: {reason}");
            assert!(ran.stderr.contains(&reason), "{ran:?}");
        };
        debugged(1, "->     return rate  # @worked", "its timeout expired");
        debugged(2, "raise ValueError(", "uncaught exception");
        // What only the kernel could have told is not there, and that is said.
        let path = capture(1);
        let sql = "SELECT * FROM process.threads";
        let ran = sandbox.probing(["-t", path.to_str().unwrap(), "query", sql]);
        let words = "a capture that the process wrote itself does not have that";
        assert!(ran.status != 0 && ran.stderr.contains(words), "{ran:?}");
    });
}

#[test]
fn it_becomes_one_file_and_is_one_of_a_set() {
    let python = &Python::all().remove(0);
    let mut keeper = Keeper::start(python);
    keeper.arm();
    let pid = keeper.target.pid();
    keeper.target.say("3");
    assert_eq!(keeper.target.line(), "0.125");
    let (sandbox, folder) = keeper.end();
    let capture = folder.join(format!("{pid}-stop-1.probe"));
    let file = sandbox.path().join("one.probe");
    let path = file.to_str().unwrap();
    let ran = sandbox.probing(["-t", capture.to_str().unwrap(), "capture", "-o", path]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(file.is_file());
    for sql in [
        "SELECT * FROM loss ORDER BY step",
        "SELECT func, lineno, source, locals FROM python.backtrace",
        "SELECT * FROM python.breakpoints",
        "SELECT command FROM process.info",
    ] {
        assert_eq!(rows(&sandbox, &file, sql), rows(&sandbox, &capture, sql));
    }
    for arguments in [&["backtrace", "--all", "--locals"][..], &["backtrace"]] {
        let of = |capture: &Path| asked(&sandbox, capture, arguments);
        assert_eq!(of(&file), of(&capture));
    }
    let debugged = |path: &Path| sandbox.probing(["-t", path.to_str().unwrap(), "debug"]);
    assert_eq!(debugged(&file).stderr, debugged(&capture).stderr);
    let both = format!("{path},{}", capture.display());
    let count = rows(&sandbox, Path::new(&both), "SELECT count(*) FROM loss");
    assert_eq!(count, "count(*)\n6\n");
    let again = sandbox.probing(["-t", path, "capture", "-o", "two.probe"]);
    assert!(
        again.stderr.contains("already a capture in one file"),
        "{again:?}"
    );
}

#[test]
fn rows_that_are_recorded_meanwhile_are_whole_or_not_there() {
    every_python(|python| {
        let mut keeper = Keeper::start(python);
        keeper.arm();
        keeper.target.say("busy");
        assert_eq!(keeper.target.line(), "busy");
        let pid = keeper.target.pid();
        for _ in 0..5 {
            keeper.target.say("3");
            assert_eq!(keeper.target.line(), "0.125");
        }
        let (sandbox, folder) = keeper.end();
        for stop in 1..=6 {
            let capture = folder.join(format!("{pid}-stop-{stop}.probe"));
            for table in ["busy0", "busy1"] {
                let sql = format!(
                    "SELECT count(*) > 0 AS some, max(n) - min(n) + 1 = count(*) AS all_of_them, \
                     count(*) FILTER (WHERE twice <> 2 * n OR text <> concat('row ', n, ' of a text that is not inline')) AS torn \
                     FROM {table}"
                );
                let told = rows(&sandbox, &capture, &sql);
                assert_eq!(told, "some,all_of_them,torn\ntrue,true,0\n", "{stop}");
            }
        }
    });
}

/// A program whose captures go to a file system of this size; `None` where we may not make one.
fn with_little_disk(sandbox: &Sandbox, python: &Python, size: &str) -> Option<Target> {
    let mut probe = Command::new("unshare");
    probe.args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    if !probe.output().is_ok_and(|output| output.status.success()) {
        eprintln!("left out: a file system of our own; run the tests as root");
        return None;
    }
    let mut command = Command::new("unshare");
    let script = format!("mount -t tmpfs -o size={size} tmpfs /mnt && exec \"$0\" \"$@\"");
    command.args(["--mount", "sh", "-c", &script]);
    command.arg(&python.path);
    command.arg(root().join("tests/targets/kept.py"));
    let target = sandbox.target_command(command).env("PROBING", "1");
    Some(target.env("PROBING_CAPTURE_DIR", "/mnt/kept").start())
}

/// Stops once for nobody; what the program says came of its capture.
fn outcome(sandbox: &Sandbox, target: &mut Target) -> String {
    let pid = target.pid().to_string();
    let place = place("worked");
    let arm = [
        "-t",
        &pid,
        "break",
        &place,
        "--stop-timeout",
        "0.05",
        "--once",
    ];
    assert_eq!(sandbox.probing(arm).status, 0);
    target.say("100000");
    assert_eq!(target.line(), "0.0");
    let sql = "SELECT text FROM python.captures WHERE kind = 'expired' ORDER BY ts DESC LIMIT 1";
    let told = sandbox.probing(["-t", &pid, "query", "--csv", sql]);
    assert_eq!(told.status, 0, "{told:?}");
    told.stdout.lines().last().unwrap().to_owned()
}

#[test]
fn a_full_disk_has_no_capture_or_one_that_says_what_it_lacks() {
    every_python(|python| {
        let sandbox = sandbox();
        let Some(mut target) = with_little_disk(&sandbox, python, "1m") else {
            return;
        };
        let told = outcome(&sandbox, &mut target);
        assert!(told.contains("; captured: /mnt/kept/"), "{told}");
        let seen = PathBuf::from(format!("/proc/{}/root/mnt/kept", target.pid()));
        let captures = with_ending(&seen, "probe");
        let missing = fs::read_to_string(captures[0].join("capture.json")).unwrap();
        assert!(missing.contains("rows, which were too many"), "{missing}");
        let sql = "SELECT max(step) AS last FROM loss";
        let last = rows(&sandbox, &captures[0], sql);
        assert_eq!(last, "last\n99999\n", "the newest rows are there");
        // Somebody else takes what is left, and nothing of another capture stays.
        let full = fs::write(seen.join("rest"), vec![0; 2 << 20]);
        assert!(full.is_err());
        let told = outcome(&sandbox, &mut target);
        let words = "No space left on device";
        assert!(
            told.contains("; not captured: ") && told.contains(words),
            "{told}"
        );
        assert_eq!(with_ending(&seen, "probe"), captures);
        assert_eq!(with_ending(&seen, "unfinished"), [""; 0].map(PathBuf::from));
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn a_process_that_is_killed_while_it_writes_leaves_nothing_that_is_taken_for_a_capture() {
    every_python(|python| {
        // Until one was met in the middle.
        wait_until("one is killed in the middle", || {
            let mut keeper = Keeper::start(python);
            keeper.target.say("200000");
            assert_eq!(keeper.target.line(), "0.0");
            keeper.arm();
            keeper.target.say("1");
            let folder = keeper.folder.clone();
            wait_until("a capture has begun", || folder.is_dir());
            keeper.target.signal(Signal::KILL);
            keeper.target.wait();
            for whole in with_ending(&folder, "probe") {
                let last = rows(&keeper.sandbox, &whole, "SELECT max(step) FROM loss");
                assert_eq!(last, "max(loss.step)\n199999\n");
            }
            let unfinished = with_ending(&folder, "unfinished");
            for path in &unfinished {
                let path = path.to_str().unwrap();
                let ran = keeper.sandbox.probing(["-t", path, "backtrace"]);
                assert_ne!(ran.status, 0, "{ran:?}");
                assert!(!Path::new(path).join("capture.json").exists());
            }
            !unfinished.is_empty()
        });
    });
}

#[test]
fn a_name_that_is_taken_is_left_as_it_is() {
    let python = &Python::all().remove(0);
    let mut keeper = Keeper::start(python);
    keeper.arm();
    let pid = keeper.target.pid();
    // As processes of two containers have one pid, and one folder for their captures.
    let taken = keeper.folder.join(format!("{pid}-stop-1.probe"));
    fs::create_dir_all(&taken).unwrap();
    fs::write(taken.join("capture.json"), "of another").unwrap();
    keeper.target.say("3");
    assert_eq!(keeper.target.line(), "0.125");
    let (sandbox, folder) = keeper.end();
    let other = folder.join(format!("{pid}-stop-1-2.probe"));
    assert_eq!(
        rows(&sandbox, &other, "SELECT count(*) FROM loss"),
        "count(*)\n3\n"
    );
    assert_eq!(
        fs::read_to_string(taken.join("capture.json")).unwrap(),
        "of another"
    );
}
