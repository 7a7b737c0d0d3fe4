//! A private folder in which one test's targets and commands meet, apart from everybody else's.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use probing_proto::env::{PROBING_DIR, PROBING_PACKAGE};
use probing_proto::paths;
use tempfile::TempDir;

use crate::command::CommandResult;
use crate::pythons::Python;
use crate::root;
use crate::target::{Target, TargetBuilder};

/// One test's own world.
#[derive(Debug)]
pub struct Sandbox {
    folder: TempDir,
    command: PathBuf,
}

impl Sandbox {
    /// `command` is the binary under test.
    pub fn new(command: impl Into<PathBuf>) -> Self {
        Self {
            // Short: the path of a socket has at most 107 bytes.
            folder: tempfile::Builder::new()
                .prefix("p-")
                .tempdir_in("/tmp")
                .expect("a temporary folder"),
            command: command.into(),
        }
    }

    /// Files of the test that are not the probe's.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The runtime folder: the value of `PROBING_DIR`. Made by the first probe.
    pub fn runtime_dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// The folders of probed processes.
    pub fn target_dirs(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.runtime_dir())
            .into_iter()
            .flatten()
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    /// Starts `tests/targets/<program>` with the probe in it and waits until it is ready.
    pub fn probed(&self, python: &Python, program: &str) -> Target {
        self.target(python, program).env("PROBING", "1").start()
    }

    /// A target to be started as the test needs it.
    pub fn target(&self, python: &Python, program: &str) -> TargetBuilder {
        let program = root().join("tests/targets").join(program);
        let mut command = Command::new(&python.path);
        command.arg(program);
        self.target_command(command)
    }

    /// A target that is started by any command.
    pub fn target_command(&self, mut command: Command) -> TargetBuilder {
        command.env(PROBING_DIR.name, self.runtime_dir());
        TargetBuilder::new(command)
    }

    /// The command under test, for those that need more than [`Sandbox::probing`].
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.command);
        command
            .env(PROBING_DIR.name, self.runtime_dir())
            .env(PROBING_PACKAGE.name, root().join("python"))
            .env_remove("PROBING_TARGET");
        command
    }

    /// Runs the command to its end.
    pub fn probing<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> CommandResult {
        let mut command = self.command();
        command.args(arguments);
        CommandResult::to_the_end(command)
    }

    /// Runs the command to its end as someone without rights over other processes, root or not.
    pub fn powerless<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> CommandResult {
        let command = self.command();
        let mut powerless = Command::new("setpriv");
        powerless.args(["--bounding-set=-all", "--inh-caps=-all"]);
        powerless.arg(command.get_program()).args(arguments);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => powerless.env(name, value),
                None => powerless.env_remove(name),
            };
        }
        CommandResult::to_the_end(powerless)
    }

    /// `probing -t PID eval CODE`
    pub fn eval(&self, target: &Target, code: &str) -> CommandResult {
        self.probing(["-t", &target.pid().to_string(), "eval", code])
    }
}

impl Drop for Sandbox {
    /// What targets have recorded is not in the folder when that is on a disk.
    fn drop(&mut self) {
        let uid = rustix::process::geteuid().as_raw();
        for key in self
            .target_dirs()
            .iter()
            .filter_map(|name| name.parse().ok())
        {
            // Most have recorded nothing.
            for folder in paths::memory_dirs(uid, key) {
                fs::remove_dir_all(folder).ok();
            }
        }
    }
}
