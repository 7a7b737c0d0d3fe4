//! Root looks into a process of another user, who chooses where the two meet.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

use probing_testkit::every_python;

use crate::sandbox;

#[test]
fn source_is_shown_only_of_files_that_the_target_may_read() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let [open, closed, link] = ["open", "closed", "link"].map(|name| sandbox.path().join(name));
        for (path, mode) in [(&open, 0o644), (&closed, 0o600)] {
            fs::write(path, "treasure\n").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink(&closed, &link).unwrap();
        for (file, is_shown) in [(&open, true), (&closed, false), (&link, false)] {
            let target = sandbox.target(python, "named_source.py").arg(file).start();
            let pid = target.pid().to_string();
            let shown = sandbox.probing(["-t", &pid, "backtrace"]);
            assert_eq!(shown.status, 0, "{shown:?}");
            assert!(shown.stdout.contains(file.to_str().unwrap()), "{shown:?}");
            assert_eq!(shown.stdout.contains("treasure"), is_shown, "{shown:?}");
            let kept = sandbox.path().join("kept.probe");
            let captured = sandbox.probing(["-t", &pid, "capture", "-o", kept.to_str().unwrap()]);
            assert_eq!(captured.status, 0, "{captured:?}");
            let shown = sandbox.probing(["-t", kept.to_str().unwrap(), "backtrace"]);
            assert_eq!(shown.stdout.contains("treasure"), is_shown, "{shown:?}");
            fs::remove_file(&kept).unwrap();
        }
    });
}

#[test]
fn a_relative_file_stays_below_the_root_of_the_target() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (outside, root) = (sandbox.path().join("outside"), sandbox.path().join("root"));
        fs::create_dir(&root).unwrap();
        fs::write(&outside, "treasure\n").unwrap();
        fs::write(root.join("inside"), "treasure\n").unwrap();
        symlink("/inside", root.join("near")).unwrap();
        symlink(&outside, root.join("far")).unwrap();
        for (file, is_shown) in [("inside", true), ("near", true), ("far", false)] {
            let target = sandbox.target(python, "named_source.py").arg(file);
            let target = target.arg(&root).start();
            let shown = sandbox.probing(["-t", &target.pid().to_string(), "backtrace"]);
            assert_eq!(shown.status, 0, "{shown:?}");
            assert!(shown.stdout.contains(file), "{shown:?}");
            assert_eq!(shown.stdout.contains("treasure"), is_shown, "{shown:?}");
        }
    });
}

#[test]
fn rows_of_another_user_are_read_through_no_link() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        let [runtime_dir, elsewhere] =
            ["theirs", "elsewhere"].map(|name| sandbox.path().join(name));
        fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for folder in [&runtime_dir, &elsewhere] {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
            chown(folder, Some(65534), Some(65534)).unwrap();
        }
        let target = sandbox.target(python, "other_user_records.py");
        let target = target.env("PROBING_DIR", &runtime_dir).start();
        let pid = target.pid().to_string();
        let query = [
            "-t",
            &pid,
            "query",
            "SELECT count(*) AS rows FROM user.losses",
        ];
        let rows = || sandbox.probing(query);
        let read = rows();
        assert!(read.stdout.contains("\n  10\n"), "{read:?}");
        let key = fs::read_dir(&runtime_dir).unwrap().flatten();
        let key = key.map(|entry| entry.path()).find(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(&format!("{pid}."))
        });
        let key = key.unwrap();
        fs::rename(&key, elsewhere.join("moved")).unwrap();
        symlink(elsewhere.join("moved"), &key).unwrap();
        let refused = rows();
        assert_ne!(refused.status, 0, "{refused:?}");
        assert!(
            refused.stderr.contains("symlink") || refused.stderr.contains("link"),
            "{refused:?}"
        );
    });
}

#[test]
fn root_makes_no_folder_where_the_targets_user_could_not() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        let closed = sandbox.path().join("closed");
        fs::create_dir(&closed).unwrap();
        for folder in [sandbox.path(), &closed] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let given = closed.join("given");
        let target = sandbox
            .target(python, "attach/traps.py")
            .arg("none")
            .arg("");
        let mut target = target.env("PROBING_DIR", &given).start();
        let ran = sandbox.probing(["-t", &target.pid().to_string(), "attach"]);
        assert!(!given.exists(), "{ran:?}");
        assert_eq!(fs::metadata(&closed).unwrap().uid(), 0);
        assert_eq!(ran.status, 3, "{ran:?}");
        let words = "error: cannot copy the probe into the target's folder ";
        assert!(ran.stderr.starts_with(words), "{ran:?}");
        assert!(target.lives());
    });
}
