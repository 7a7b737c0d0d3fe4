//! `probing watch --addr` and `--storage`: who writes to some bytes, seen by the processor.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, Stdio};
use std::thread;

use probing_testkit::{Python, Sandbox, Target, every_python};
use serde_json::Value;

use crate::breakpoints::probing;
use crate::sandbox;

const PROGRAM: &str = "bytes.py";

/// `probing watch …`, when it watches.
pub(crate) struct Watching {
    pub(crate) child: Child,
    /// What it says that it watches.
    pub(crate) said: String,
    /// It may have more to say.
    pub(crate) stderr: BufReader<ChildStderr>,
}

impl Watching {
    pub(crate) fn start(sandbox: &Sandbox, target: &Target, arguments: &[&str]) -> Self {
        let mut command = sandbox.command();
        command.args(["-t", &target.pid().to_string(), "watch"]);
        command.args(arguments);
        let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.stdin(Stdio::null()).spawn().unwrap();
        let mut said = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        assert!(said.starts_with("watching "), "{said}");
        Self {
            child,
            said,
            stderr,
        }
    }

    /// What it printed, at its end.
    pub(crate) fn printed(mut self) -> String {
        let mut printed = String::new();
        let stdout = self.child.stdout.as_mut().unwrap();
        stdout.read_to_string(&mut printed).unwrap();
        assert!(self.child.wait().unwrap().success(), "{printed}");
        printed
    }

    /// What it printed and what it said, at its end.
    fn said_and_printed(mut self) -> (String, String) {
        let stdout = self.child.stdout.take().unwrap();
        let printing = thread::spawn(move || std::io::read_to_string(stdout).unwrap());
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        (said, printing.join().unwrap())
    }

    /// The one write that it saw.
    fn write(self) -> Value {
        let printed = self.printed();
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
    }
}

/// A program, and lines of it.
pub(crate) struct Program {
    pub(crate) sandbox: Sandbox,
    pub(crate) target: Target,
}

impl Program {
    pub(crate) fn start(python: &Python) -> Self {
        let sandbox = sandbox();
        let target = sandbox.probed(python, PROGRAM);
        Self { sandbox, target }
    }

    pub(crate) fn watch(&self, arguments: &[&str]) -> Watching {
        Watching::start(&self.sandbox, &self.target, arguments)
    }

    /// What it has for an expression.
    pub(crate) fn told(&mut self, expression: &str) -> String {
        self.target.say(&format!("print({expression}, flush=True)"));
        let told = self.target.line();
        assert_eq!(self.target.line(), "done");
        told
    }

    /// Lets it go on from where it wrote.
    fn go_on(&mut self) {
        self.target.say("");
        assert_eq!(self.target.line(), "done");
    }
}

/// Python's frames and the libraries of native ones, innermost first.
fn frames(write: &Value) -> Vec<String> {
    let frames = write["thread"]["frames"].as_array().unwrap();
    let told = |frame: &Value| {
        let text = |name: &str| frame[name].as_str().unwrap().to_owned();
        match &*text("frame_type") {
            "Native" => text("file"),
            _ => text("func"),
        }
    };
    frames.iter().map(told).collect()
}

#[track_caller]
fn check_writer(write: &Value, function: &str, thread: &str) {
    let frames = frames(write);
    let python = frames.iter().find(|frame| !frame.starts_with('/'));
    // It waits in a function that it calls behind the write.
    let own: Vec<&str> = frames
        .iter()
        .map(String::as_str)
        .filter(|it| *it == function)
        .collect();
    assert!(python.is_some() && own == [function], "{write:#}");
    assert_eq!(write["thread"]["thread_name"], thread, "{write:#}");
}

#[test]
fn a_write_to_an_address_is_reported_with_native_frames() {
    every_python(|python| {
        let mut program = Program::start(python);
        let address = program.told("hex(ctypes.addressof(data))");
        let watching = program.watch(&["--addr", &address, "--once", "--json"]);
        let said = &watching.said;
        let expected = format!("watching 8 bytes at {address}, now 0x0; cost: ");
        assert!(said.starts_with(&expected), "{said}");
        program.target.say("by_library(0x2a)");
        let write = watching.write();
        assert_eq!(write["old"], "0x0", "{write:#}");
        assert_eq!(write["new"], "0x2a2a2a2a", "{write:#}");
        assert_eq!(write["by_kernel"], false);
        check_writer(&write, "by_library", "MainThread");
        // The C library wrote, called by that of ctypes.
        let frames = frames(&write);
        assert!(frames[0].contains("libc"), "{write:#}");
        assert!(
            frames
                .iter()
                .any(|file| file.contains("ctypes") || file.contains("libffi")),
            "{write:#}"
        );
        program.go_on();
        // It is a row, too.
        let sql = "SELECT name, old, new, func FROM python.variables";
        let rows = probing(&program.sandbox, &program.target, &["query", "--csv", sql]);
        let function = rows.stdout.lines().nth(1).unwrap_or_default().to_owned();
        assert!(
            function.starts_with(&format!("{address},0x0,0x2a2a2a2a,")),
            "{rows:?}"
        );
    });
}

#[test]
fn an_element_is_watched_in_threads_that_come_later_and_for_what_the_kernel_writes() {
    every_python(|python| {
        let mut program = Program::start(python);
        let element = ["--storage", "memoryview(array)[8:]", "--once", "--json"];
        let watching = program.watch(&element);
        let said = watching.said.clone();
        assert!(said.starts_with("watching 1 byte at 0x"), "{said}");
        assert!(
            said.contains(" of memoryview(array)[8:], now 0x0; "),
            "{said}"
        );
        program.target.say("in_thread(by_python, 7)");
        let write = watching.write();
        assert_eq!(
            (&write["old"], &write["new"]),
            (&"0x0".into(), &"0x7".into())
        );
        check_writer(&write, "by_python", "worker");
        program.go_on();
        if !said.contains("CAP_PERFMON") {
            let watching = program.watch(&element);
            program.target.say("by_kernel()");
            let write = watching.write();
            assert_eq!(
                (&write["new"], &write["by_kernel"]),
                (&"0x0".into(), &true.into())
            );
            check_writer(&write, "by_kernel", "MainThread");
            program.go_on();
        }
        let nobody = program.watch(&["--storage", "array", "--for", "1ms"]);
        assert_eq!(nobody.printed(), "");
        // More than can be told is no harm; and the end of the program is the end of the watch.
        let watching = program.watch(&["--storage", "memoryview(array)[8:]"]);
        program.target.say("often(20_000)");
        assert_eq!(program.target.line(), "done");
        assert_eq!(program.target.end().stderr, [""; 0]);
        let (said, printed) = watching.said_and_printed();
        assert!(
            printed.contains("; native frames of the write, Python's "),
            "{printed}"
        );
        assert!(
            said.contains(" more writes were not recorded: too many in a second\n"),
            "{said}"
        );
    });
}

#[test]
fn what_cannot_be_watched_is_said() {
    every_python(|python| {
        let program = Program::start(python);
        let refused = |arguments: &[&str]| {
            let arguments = [&["watch"], arguments].concat();
            let ran = probing(&program.sandbox, &program.target, &arguments);
            assert_ne!(ran.status, 0, "{ran:?}");
            ran.stderr
        };
        let said = refused(&["--storage", "[1, 2]"]);
        assert!(
            said.contains("a list has no bytes that can be watched"),
            "{said}"
        );
        assert!(said.contains("hint: name a tensor or an array"), "{said}");
        let said = refused(&["--storage", "no_such_name"]);
        assert!(
            said.contains("NameError: name 'no_such_name' is not defined"),
            "{said}"
        );
        let said = refused(&["--addr", "0x7f0000000003", "--len", "8"]);
        assert!(said.contains("a multiple of 8: 0x7f0000000003"), "{said}");
        assert!(
            said.contains("hint: --addr 0x7f0000000000 is just before; or fewer bytes: --len 1"),
            "{said}"
        );
        let said = refused(&["--addr", "0x7f0000000000", "--len", "3"]);
        assert!(
            said.contains("1, 2, 4 or 8 bytes can be watched, not 3"),
            "{said}"
        );
        let said = refused(&["--addr", "0x7f0000000000", "--stop"]);
        assert!(said.contains("cannot be used with"), "{said}");
        // Root's programs are not for those who have lost root's rights.
        if rustix::process::geteuid().is_root() {
            let pid = program.target.pid().to_string();
            let arguments = ["-t", &pid, "watch", "--storage", "array"];
            let ran = program.sandbox.powerless(arguments);
            let said = ran.stderr.replace(&pid, "PID");
            assert!(
                said.contains("not permitted to set debug registers in process: PID"),
                "{ran:?}"
            );
            assert!(
                said.contains("hint: the kernel asks for kernel.perf_event_paranoid of 2 or less"),
                "{ran:?}"
            );
        }
    });
}
