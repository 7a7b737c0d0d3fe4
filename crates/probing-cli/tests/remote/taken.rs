//! Names in `/tmp` that another user has taken first: probe, commands and agents meet in another folder.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use probing_testkit::{CommandResult, Python, Sandbox, every_python};
use rustix::process::{Signal, geteuid};

use crate::sandbox;

const NOBODY: u32 = 65534;
const FOLDERS: usize = 10;

/// A user whose names are taken, on a machine that others use, too. All that is made of it goes with this.
struct Victim {
    sandbox: Sandbox,
    uid: u32,
    /// The commands, in a folder that the user can read.
    bin: PathBuf,
}

impl Victim {
    /// None where that takes root.
    fn new(python: &Python) -> Option<Self> {
        if !geteuid().is_root() {
            return None;
        }
        let sandbox = sandbox();
        let uid = 1_000_000 + std::process::id() * 16 + python.version.1 % 16;
        let bin = sandbox.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for folder in [sandbox.path(), &bin] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let built = Path::new(env!("CARGO_BIN_EXE_probing")).parent().unwrap();
        for name in ["probing", "probing-engine"] {
            let (from, to) = (built.join(name), bin.join(name));
            if from.exists() && fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to).unwrap();
            }
        }
        Some(Self { sandbox, uid, bin })
    }

    /// The folders that its probes try, in their order.
    fn folders(&self) -> Vec<PathBuf> {
        let usual = format!("/tmp/probing-{}", self.uid);
        let spares = (1..FOLDERS).map(|number| format!("{usual}-{number}"));
        let all = [usual.clone()].into_iter().chain(spares);
        all.map(PathBuf::from).collect()
    }

    fn target(&self, python: &Python, how: &str) -> probing_testkit::Target {
        let target = self.sandbox.target(python, "other_user_records.py");
        let target = target.arg(self.uid.to_string()).arg(how);
        target
            .with(|command| {
                command.env_remove("PROBING_DIR");
            })
            .start()
    }

    /// The command as the user itself.
    fn command(&self) -> Command {
        let ids = [
            format!("--reuid={}", self.uid),
            format!("--regid={}", self.uid),
        ];
        let mut command = Command::new("setpriv");
        command.args(ids).arg("--clear-groups");
        command.arg(self.bin.join("probing"));
        command.current_dir("/").env("HOME", "/nonexistent");
        for name in [
            "PROBING_DIR",
            "PROBING_TARGET",
            "PROBING_TOKEN",
            "XDG_STATE_HOME",
        ] {
            command.env_remove(name);
        }
        command
    }

    fn own(&self, arguments: &[&str]) -> CommandResult {
        let mut command = self.command();
        command.args(arguments);
        CommandResult::to_the_end(command)
    }

    fn root(&self, arguments: &[&str]) -> CommandResult {
        let mut command = self.sandbox.command();
        command.args(arguments).env_remove("PROBING_DIR");
        CommandResult::to_the_end(command)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let memory = self.folders().into_iter().map(|folder| {
            let name = folder.file_name().unwrap().to_owned();
            Path::new("/dev/shm").join(name)
        });
        for path in memory.chain(self.folders()) {
            if path.is_symlink() || path.is_file() {
                fs::remove_file(path).ok();
            } else {
                fs::remove_dir_all(path).ok();
            }
        }
    }
}

/// What another user puts into the place of a private folder.
fn take(path: &Path, kind: &str, elsewhere: &Path) {
    match kind {
        "folder" => fs::create_dir(path).unwrap(),
        "link" => symlink(elsewhere, path).unwrap(),
        _ => fs::write(path, "").unwrap(),
    }
    lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

#[test]
fn a_folder_whose_name_is_taken_is_avoided_by_probe_commands_and_agents() {
    every_python(|python| {
        for kind in ["folder", "link", "file"] {
            let Some(victim) = Victim::new(python) else {
                return;
            };
            let folders = victim.folders();
            take(&folders[0], kind, victim.sandbox.path());
            // Nor is memory for rows kept from it.
            take(
                &Path::new("/dev/shm").join(folders[0].file_name().unwrap()),
                kind,
                Path::new("/"),
            );
            let target = victim.target(python, "records");
            let pid = target.pid().to_string();
            let made = fs::symlink_metadata(&folders[1]).unwrap();
            assert_eq!((made.uid(), made.mode() & 0o7777), (victim.uid, 0o700));

            let rows = "SELECT count(*) AS n FROM user.losses";
            for look in [
                &(|arguments: &[&str]| victim.root(arguments)) as &dyn Fn(&[&str]) -> CommandResult,
                &|arguments: &[&str]| victim.own(arguments),
            ] {
                assert_eq!(
                    look(&["-t", &pid, "eval", "--no-attach", "6 * 7"]).ok(),
                    "42\n"
                );
                assert_eq!(
                    look(&["-t", &pid, "query", "--csv", rows]).stdout,
                    "n\n10\n"
                );
            }
            let listed = victim.own(&["list", "--json"]).json();
            let mut listed = listed.as_array().unwrap().iter();
            let found = listed.find(|process| process["pid"] == target.pid());
            assert_eq!(found.unwrap()["probe"], "running");

            let own = victim.command();
            // What it says to its user is no data.
            let mut agent = Command::new("sh");
            agent.args(["-c", "exec \"$@\" 2>&1", "sh"]);
            agent.arg(own.get_program()).args(own.get_args());
            agent.args(["agent", "--listen", "127.0.0.1:0"]);
            agent.current_dir("/").env("HOME", "/nonexistent");
            let mut agent = victim
                .sandbox
                .target_command(agent)
                .with(|command| {
                    command.env_remove("PROBING_DIR");
                })
                .start_without_waiting();
            let greeting = agent.line();
            let address = greeting.strip_prefix("listening on ").unwrap();
            let address = address.split(' ').next().unwrap().to_owned();
            let asked = victim.own(&["-t", &address, "eval", "7 * 6"]);
            assert_eq!(asked.ok(), "42\n");
            agent.signal(Signal::TERM);
            agent.wait();

            target.signal(Signal::KILL);
            target.wait();
            let dead = victim.own(&["list", "--dead", "--json"]).json();
            assert_eq!(dead[0]["tables"][0]["rows"], 10, "{dead}");
            assert_eq!(
                victim.own(&["-t", &pid, "query", "--csv", rows]).stdout,
                "n\n10\n"
            );
            // What the other user has put there is as it was.
            assert_eq!(fs::symlink_metadata(&folders[0]).unwrap().uid(), NOBODY);
        }
    });
}

#[test]
fn a_user_who_takes_every_name_is_named() {
    every_python(|python| {
        let Some(victim) = Victim::new(python) else {
            return;
        };
        for (index, folder) in victim.folders().iter().enumerate() {
            take(folder, ["folder", "link"][index % 2], victim.sandbox.path());
        }
        let target = victim.target(python, "bare");
        let pid = target.pid().to_string();
        let first = victim.folders()[0].display().to_string();
        let refused = victim.root(&["-t", &pid, "attach"]);
        let error = format!(
            "has taken the names of all 10 private folders; uid {NOBODY} has: /proc/{pid}/root{first}"
        );
        assert_ne!(refused.status, 0, "{refused:?}");
        assert!(
            refused.stderr.contains(&error)
                || refused
                    .stderr
                    .contains(&error.replace(&format!("/proc/{pid}/root"), "")),
            "{refused:?}"
        );
        assert!(refused.stderr.contains("set PROBING_DIR"), "{refused:?}");
        // One of its own user's choice is as good as ever.
        let asked = victim.own(&["agent", "--listen", "127.0.0.1:0"]);
        assert!(
            asked.stderr.contains(&format!("uid {NOBODY} has")),
            "{asked:?}"
        );
    });
}
