//! Starts the programs under `tests/targets/attach`, waits until they say they are ready, and looks at them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use probing_attach::{AttachError, Options, Report};
use probing_proto::env::PROBING_TEST_PYTHONS;
use probing_proto::process::Pid;

/// The interpreters to test: those named, else those that pyenv and `scripts/python314` have.
pub(crate) fn pythons() -> Vec<PathBuf> {
    if let Some(list) = PROBING_TEST_PYTHONS.value() {
        return std::env::split_paths(&list).collect();
    }
    let home = std::env::home_dir().unwrap_or_default();
    let mut found: Vec<PathBuf> = fs::read_dir(home.join(".pyenv/versions"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin/python")))
        .filter(|path| {
            ["/3.10", "/3.11", "/3.12", "/3.13", "/3.14"]
                .iter()
                .any(|v| path.to_string_lossy().contains(v))
        })
        .collect();
    found.sort();
    let cached = home.join(".cache/probing-dev/python3.14/usr/bin/python3.14");
    found.extend(Some(cached).filter(|path| path.exists()));
    assert!(
        !found.is_empty(),
        "no Python found: set PROBING_TEST_PYTHONS"
    );
    found
}

pub(crate) fn on_every_python(test: impl Fn(&Path)) {
    for python in pythons() {
        test(&python);
    }
}

/// What a program has of the system.
#[derive(Debug)]
pub(crate) struct Size {
    pub(crate) handles: u64,
    pub(crate) mappings: u64,
    pub(crate) resident_kb: u64,
}

/// A running program; killed with its children when dropped.
pub(crate) struct Target {
    pub(crate) pid: Pid,
    child: Child,
    out: BufReader<ChildStdout>,
    name: String,
}

impl Target {
    pub(crate) fn start(python: &Path, name: &str, arguments: &[&str]) -> Self {
        let script = targets().join(name).with_extension("py");
        let mut child = Command::new(python)
            .arg(script)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let name = format!("{name} {arguments:?} on {}", python.display());
        let mut target = Self {
            pid: Pid(child.id()),
            child,
            out,
            name,
        };
        target.wait_for("ready");
        target
    }

    /// Waits until main waits, if it is one that does: between "ready" and that it is neither here nor there.
    pub(crate) fn settle(&self) {
        let started = Instant::now();
        let waits = || {
            !fs::read_to_string(self.path("syscall"))
                .unwrap()
                .starts_with("running")
        };
        while !waits() && started.elapsed() < Duration::from_millis(20) {
            thread::yield_now();
        }
    }

    /// Waits for a line that starts with `word`; a number after it is the process to look at.
    pub(crate) fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while !line.starts_with(word) {
            line.clear();
            assert!(
                self.out.read_line(&mut line).unwrap() > 0,
                "{self} ended early"
            );
        }
        if let Some(pid) = line.split_whitespace().nth(1) {
            self.pid = pid.parse().unwrap();
        }
    }

    pub(crate) fn run(&self, source: &str) -> Result<Report, AttachError> {
        let deadline = Duration::from_secs(10);
        probing_attach::run(
            self.pid,
            source,
            &Options {
                deadline,
                ..Options::default()
            },
        )
    }

    pub(crate) fn run_within(
        &self,
        source: &str,
        deadline: Duration,
        force: bool,
    ) -> Result<Report, AttachError> {
        probing_attach::run(
            self.pid,
            source,
            &Options {
                deadline,
                force,
                ..Options::default()
            },
        )
    }

    /// The value of an expression, as text.
    #[track_caller]
    pub(crate) fn eval(&self, expression: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = scratch().join(format!("eval-{number}"));
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

    pub(crate) fn path(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.pid)
    }

    fn status(task: &str, field: &str) -> String {
        let text = fs::read_to_string(task).unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        Self::status(&self.path("status"), "State").starts_with('T')
    }

    pub(crate) fn signal(&self, number: &str) {
        let done = Command::new("kill")
            .args([number, &self.pid.to_string()])
            .status()
            .unwrap();
        assert!(done.success());
    }

    /// Anonymous memory that can be executed: only our blocks are that.
    pub(crate) fn blocks(&self) -> usize {
        let maps = fs::read_to_string(self.path("maps")).unwrap();
        let is_block = |line: &&str| line.contains(" r-xp ") && line.ends_with(" 0 ");
        maps.lines().filter(is_block).count()
    }

    pub(crate) fn size(&self) -> Size {
        let resident = Self::status(&self.path("status"), "VmRSS");
        Size {
            handles: fs::read_dir(self.path("fd")).unwrap().count() as u64,
            mappings: fs::read_to_string(self.path("maps"))
                .unwrap()
                .lines()
                .count() as u64,
            resident_kb: resident.trim_end_matches(" kB").parse().unwrap(),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        fs::read_dir(self.path("task")).unwrap().count()
    }

    /// Alive, nobody's tracee, not stopped, no thread of the program with all its signals blocked.
    #[track_caller]
    pub(crate) fn assert_unharmed(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert_eq!(ended, None, "{self}");
        let pid = self.pid;
        let at_home = || {
            let main = format!("/proc/{pid}/task/{pid}/status");
            Self::status(&main, "TracerPid") == "0"
                && Self::status(&main, "SigBlk") == "0000000000000000"
        };
        eventually(&self.name, at_home);
        assert!(!self.is_stopped(), "{self}");
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        _ = self.child.wait();
    }
}

/// Waits until `holds`, for what another process does in its own time.
#[track_caller]
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "never true: {what}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

fn targets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/targets/attach")
}

pub(crate) fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The C code that some targets load; `None` without a compiler.
pub(crate) fn library() -> Option<&'static str> {
    static BUILT: OnceLock<Option<String>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let path = scratch().join(format!("library-{}.so", std::process::id()));
            let built = Command::new("cc")
                .args(["-O1", "-mno-red-zone", "-shared", "-fPIC", "-pthread", "-o"])
                .arg(&path)
                .arg(targets().join("library.c"))
                .status();
            built
                .is_ok_and(|status| status.success())
                .then(|| path.to_string_lossy().into_owned())
        })
        .as_deref()
}
