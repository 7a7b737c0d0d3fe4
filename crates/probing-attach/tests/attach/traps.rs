//! Root attaches to a process of another user who controls the runtime folder, without harm to other files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use probing_testkit::{Python, Sandbox, root, wait_until};

use crate::killed::attach;
use crate::target::{Target, left_out};

/// What an attach removes when it is done.
const FILES: [&str; 4] = ["script", "ask", "taken", "taken-back"];
const ENOUGH: usize = 5;

/// The one Python that is entered through files.
fn python() -> Option<Python> {
    let found = Python::all()
        .into_iter()
        .find(|python| python.version >= (3, 14));
    if found.is_none() {
        left_out("traps in /tmp: there is no Python 3.14");
    }
    found
}

/// A folder of root's, with files that have the names of ours.
fn treasure(sandbox: &Sandbox) -> PathBuf {
    let folder = sandbox.path().join("treasure");
    fs::create_dir(&folder).unwrap();
    for name in FILES {
        fs::write(folder.join(name), name).unwrap();
    }
    folder
}

#[track_caller]
fn assert_untouched(treasure: &Path) {
    for (path, text) in FILES.map(|name| (treasure.join(name), name)) {
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::metadata(&path).unwrap().uid(), 0, "{}", path.display());
    }
    assert_eq!(fs::metadata(treasure).unwrap().uid(), 0);
    assert_eq!(fs::read_dir(treasure).unwrap().count(), FILES.len());
}

/// A target whose `/tmp` is a folder of its user's alone.
fn trapped(sandbox: &Sandbox, kind: &str, treasure: &Path) -> Option<probing_testkit::Target> {
    let python = python()?;
    let unshare = ["--mount", "--propagation", "private"];
    let may = Command::new("unshare").args(unshare).arg("true").status();
    if !rustix::process::geteuid().is_root() || !may.is_ok_and(|status| status.success()) {
        left_out("traps in /tmp: only root has other users' processes");
        return None;
    }
    let tmp = sandbox.path().join("tmp");
    fs::create_dir(&tmp).unwrap();
    std::os::unix::fs::chown(&tmp, Some(65534), Some(65534)).unwrap();
    // A checkout may lie below /tmp, which the target does not see.
    let program = root().join("tests/targets/attach/traps.py");
    fs::copy(program, tmp.join("traps.py")).unwrap();
    fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("unshare");
    command.args(unshare);
    command.args(["sh", "-c", "mount --bind \"$0\" /tmp && exec \"$@\""]);
    command.args([&tmp, &python.path, Path::new("/tmp/traps.py")]);
    command.arg(kind).arg(treasure);
    Some(sandbox.target_command(command).start())
}

#[test]
fn links_that_look_like_left_folders_are_not_followed() {
    let sandbox = Sandbox::new("");
    let treasure = treasure(&sandbox);
    let Some(mut target) = trapped(&sandbox, "planted", &treasure) else {
        return;
    };
    for _ in 0..ENOUGH {
        attach(target.pid(), 0);
        assert_untouched(&treasure);
    }
    assert!(target.lives());
}

#[test]
fn a_folder_that_is_swapped_for_a_link_is_not_followed() {
    let sandbox = Sandbox::new("");
    let treasure = treasure(&sandbox);
    let Some(mut target) = trapped(&sandbox, "swapped", &treasure) else {
        return;
    };
    let mut swapped = 0;
    wait_until("folders are swapped", || {
        attach(target.pid(), 0);
        assert_untouched(&treasure);
        swapped += target.lines_so_far().len();
        swapped >= ENOUGH
    });
    assert!(target.lives());
}

#[test]
fn folders_of_dead_targets_are_swept_and_no_others() {
    let Some(python) = python() else { return };
    let [dead, alive, other] = [(); 3].map(|()| Target::start(&python, "tight_loop", &[]));
    let folders = |target: &str| {
        let prefix = format!("probing-attach-{target}-");
        let names = fs::read_dir("/tmp").unwrap().flatten();
        let is_its = |name: &fs::DirEntry| name.file_name().to_string_lossy().starts_with(&prefix);
        names.filter(is_its).count()
    };
    let (dead_pid, alive_pid) = (dead.pid.to_string(), alive.pid.to_string());
    for target in [&dead, &alive] {
        target.settle();
        // Its folder is made, its script is not asked for yet.
        assert_eq!(attach(target.pid.0, 1).status.code(), None);
    }
    assert_eq!((folders(&dead_pid), folders(&alive_pid)), (1, 1));
    drop(dead);
    other.settle();
    other.run("pass").unwrap();
    assert_eq!((folders(&dead_pid), folders(&alive_pid)), (0, 1));
    drop(alive);
    probing_attach::sweep_dead();
    assert_eq!((folders(&dead_pid), folders(&alive_pid)), (0, 0));
}
