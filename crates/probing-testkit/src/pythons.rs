//! The interpreters that targets run on.

use std::ffi::OsStr;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;

use probing_proto::env::{PROBING_TEST_PYTHONS, PROBING_TEST_TORCH};

/// A Python with the wheel installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Python {
    pub path: PathBuf,
    /// `(3, 12)`
    pub version: (u32, u32),
}

impl Python {
    /// All that `make test` found.
    ///
    /// # Panics
    ///
    /// When there are none: a test without a target would pass without testing.
    pub fn all() -> Vec<Self> {
        let paths = PROBING_TEST_PYTHONS.value().expect(
            "PROBING_TEST_PYTHONS is not set: run `make test`, or `eval $(make test-env)` before cargo",
        );
        std::env::split_paths(&paths)
            .map(|path| Self::at(&path))
            .collect()
    }

    /// The one that has torch.
    ///
    /// # Panics
    ///
    /// When there is none: `make test` leaves such tests out then, and says so.
    pub fn with_torch() -> Self {
        Self::all_with_torch().swap_remove(0)
    }

    /// That one, and one that is older than 3.12, where there is one.
    fn all_with_torch() -> Vec<Self> {
        let paths = PROBING_TEST_TORCH.value().expect(
            "PROBING_TEST_TORCH is not set: run `scripts/torch-environment`, `make environments` and `eval $(make test-env)` before cargo",
        );
        std::env::split_paths(&paths)
            .map(|path| Self::at(&path))
            .collect()
    }

    fn at(path: &Path) -> Self {
        let printed = Command::new(path)
            .args(["-c", "import sys; print(*sys.version_info[:2])"])
            .output()
            .expect("the interpreter starts");
        let text = String::from_utf8_lossy(&printed.stdout).into_owned();
        let mut numbers = text
            .split_whitespace()
            .map(|number| number.parse().expect("a number"));
        let mut number = || numbers.next().expect("two numbers");
        Self {
            path: path.to_owned(),
            version: (number(), number()),
        }
    }

    /// Runs a short program to its end.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments);
        command
    }
}

/// Runs `test` on each Python; a failure says on which, after all had their turn. Its snapshots hold for all of them.
pub fn every_python(test: impl Fn(&Python)) {
    on_each(&Python::all(), test);
}

/// The same on each that has torch.
pub fn every_torch(test: impl Fn(&Python)) {
    on_each(&Python::all_with_torch(), test);
}

fn on_each(pythons: &[Python], test: impl Fn(&Python)) {
    let failed: Vec<String> = insta::allow_duplicates! {
        pythons
            .iter()
            .filter(|python| panic::catch_unwind(AssertUnwindSafe(|| test(python))).is_err())
            .map(|python| format!("{}.{}", python.version.0, python.version.1))
            .collect()
    };
    assert!(failed.is_empty(), "failed on Python {}", failed.join(", "));
}
