//! Root looks into a process of another user, who chooses where the two meet.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use probing_testkit::every_python;

use crate::sandbox;

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
        let words = "error: cannot bring the probe into the target's folder ";
        assert!(ran.stderr.starts_with(words), "{ran:?}");
        assert!(target.lives());
    });
}
