//! A program under `tests/targets/attach`, and what the tests here do with one: enter it, look at it from outside.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use probing_attach::{AttachError, Options, Report};
use probing_proto::process::Pid;
use probing_testkit::{Python, Sandbox, Usage, root, wait_until};

/// A running program. What the testkit knows of it is in `program`.
#[derive(Debug)]
pub(crate) struct Target {
    /// The process to look at: the program itself, or a child of it.
    pub(crate) pid: Pid,
    pub(crate) program: probing_testkit::Target,
    sandbox: Sandbox,
    name: String,
}

impl Target {
    /// `name`: of a file under `tests/targets/attach`.
    pub(crate) fn start(python: &Python, name: &str, arguments: &[&str]) -> Self {
        let sandbox = Sandbox::new("");
        let target = arguments.iter().fold(
            sandbox.target(python, &format!("attach/{name}.py")),
            probing_testkit::TargetBuilder::arg,
        );
        let program = target.start();
        Self {
            pid: Pid(program.pid()),
            program,
            sandbox,
            name: format!("{name} {arguments:?} on {}", python.path.display()),
        }
    }

    /// The program has told the pid of its child: look at that one instead.
    pub(crate) fn look_at_child(&mut self) {
        self.pid = self.program.line().parse().unwrap();
    }

    /// For files that a test wants of it.
    pub(crate) fn folder(&self) -> &Path {
        self.sandbox.path()
    }

    /// Waits until main waits, or has run long enough to be one that does not: just after "ready" it is neither here
    /// nor there.
    pub(crate) fn settle(&self) {
        let ran_before = self.cpu_nanos();
        wait_until(&format!("{self} has settled"), || {
            let is_busy = self.cpu_nanos() > ran_before + 20_000_000;
            is_busy || !self.read("syscall").starts_with("running")
        });
    }

    fn cpu_nanos(&self) -> u64 {
        let stat = self.read("schedstat");
        stat.split(' ').next().unwrap().parse().unwrap()
    }

    pub(crate) fn run(&self, source: &str) -> Result<Report, AttachError> {
        self.run_within(source, Duration::from_secs(10), false)
    }

    pub(crate) fn run_within(
        &self,
        source: &str,
        deadline: Duration,
        force: bool,
    ) -> Result<Report, AttachError> {
        let options = Options {
            deadline,
            force,
            ..Options::default()
        };
        probing_attach::run(self.pid, source, &options)
    }

    /// The value of an expression, as text.
    #[track_caller]
    pub(crate) fn eval(&self, expression: &str) -> String {
        let path = self.folder().join("value");
        let source = format!(
            "import sys, __main__ as main\nwith open('{}', 'w') as f: f.write(str({expression}))",
            path.display()
        );
        if let Err(error) = self.run(&source) {
            panic!("{self}: {expression}: {error}");
        }
        let value = fs::read_to_string(&path).unwrap();
        fs::remove_file(path).unwrap();
        value
    }

    #[track_caller]
    pub(crate) fn eval_number(&self, expression: &str) -> u64 {
        self.eval(expression).parse().unwrap()
    }

    /// Runs and counts in the target; it must have worked every time before too.
    #[track_caller]
    pub(crate) fn count_up_to(&self, expected: u32) {
        let count =
            self.eval_number("setattr(sys, '_count', getattr(sys, '_count', 0) + 1) or sys._count");
        assert_eq!(count, u64::from(expected), "{self}");
    }

    /// A file of its folder in `/proc`.
    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid)).unwrap_or_default()
    }

    fn status(&self, field: &str) -> String {
        let text = self.read("status");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    }

    /// How often main has gone to wait for something.
    pub(crate) fn waits(&self) -> u64 {
        self.status("voluntary_ctxt_switches").parse().unwrap()
    }

    /// How often another thread has; nothing of one that is gone.
    pub(crate) fn naps_of(&self, tid: &str) -> u64 {
        let text = self.read(&format!("task/{tid}/status"));
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |count| count.trim().parse().unwrap())
    }

    /// Who holds it as a debugger does.
    pub(crate) fn tracer(&self) -> Option<u32> {
        let tracer = self.status("TracerPid").parse().ok();
        tracer.filter(|tracer| *tracer != 0)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.status("State").starts_with('T')
    }

    /// A signal that is queued as often as it is sent.
    pub(crate) fn send_real_time_signal(&self) {
        let done = Command::new("kill")
            .args(["-RTMIN", &self.pid.to_string()])
            .status()
            .unwrap();
        assert!(done.success());
    }

    /// Anonymous memory that can be executed: only our blocks are that.
    pub(crate) fn blocks(&self) -> usize {
        let is_block = |line: &&str| line.contains(" r-xp ") && line.ends_with(" 0 ");
        self.read("maps").lines().filter(is_block).count()
    }

    pub(crate) fn mappings(&self) -> u64 {
        self.read("maps").lines().count() as u64
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.pid.0)
    }

    #[track_caller]
    pub(crate) fn assert_no_block_stays(&self) {
        wait_until(&format!("no block is in {self}"), || self.blocks() == 0);
    }

    /// Alive, nobody's tracee, not stopped, main with no signal blocked.
    #[track_caller]
    pub(crate) fn assert_unharmed(&mut self) {
        assert!(self.program.lives(), "{self}");
        wait_until(&format!("{self} is at home"), || {
            self.status("TracerPid") == "0" && self.status("SigBlk") == "0000000000000000"
        });
        assert!(!self.is_stopped(), "{self}");
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Says that a test, or a part of it, could not run here.
#[expect(clippy::print_stderr, reason = "for who reads the tests' output")]
pub(crate) fn left_out(what: &str) {
    eprintln!("left out: {what}");
}

/// The C code that some targets load; `None`, and said so, without a compiler.
pub(crate) fn library() -> Option<&'static str> {
    static BUILT: OnceLock<Option<String>> = OnceLock::new();
    let built = BUILT.get_or_init(build_library).as_deref();
    if built.is_none() {
        left_out("this test, because there is no working `cc`");
    }
    built
}

fn build_library() -> Option<String> {
    // Tests run in processes of their own, at the same time: each builds beside and moves it into place.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (path, draft) = (
        folder.join("library.so"),
        folder.join(format!("library-{}.so", std::process::id())),
    );
    let source = root().join("tests/targets/attach/library.c");
    let modified = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified());
    let is_fresh =
        matches!((modified(&path), modified(&source)), (Ok(built), Ok(written)) if built > written);
    if !is_fresh {
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-mno-red-zone", "-shared", "-fPIC", "-pthread"]);
        compiler.arg("-o").args([&draft, &source]);
        if !compiler.status().is_ok_and(|status| status.success()) {
            return None;
        }
        fs::rename(draft, &path).unwrap();
    }
    Some(path.to_string_lossy().into_owned())
}
