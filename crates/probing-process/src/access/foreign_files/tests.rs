//! Folders with links and other traps in them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;

use tempfile::TempDir;

use crate::access::foreign_files::*;

/// A folder to be led out of, and one with something to lose.
struct Trap {
    _keep: TempDir,
    folder: PathBuf,
    treasure: PathBuf,
}

fn trap() -> Trap {
    let keep = TempDir::new().unwrap();
    let root = keep.path().canonicalize().unwrap();
    let [folder, treasure] = ["folder", "treasure"].map(|name| root.join(name));
    for each in [&folder, &treasure] {
        fs::create_dir(each).unwrap();
    }
    fs::write(treasure.join("script"), "precious").unwrap();
    symlink(&treasure, folder.join("link")).unwrap();
    Trap {
        _keep: keep,
        folder,
        treasure,
    }
}

fn this_process() -> Pid {
    Pid(std::process::id())
}

#[test]
fn a_link_on_the_way_is_not_followed() {
    let trap = trap();
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    assert!(ForeignDir::in_root_of(this_process(), &trap.folder).is_ok());
    assert!(walk_below(&root, &trap.folder).is_ok());
    assert!(walk_below(&root, Path::new("/")).is_ok());
    for path in [trap.folder.join("link"), trap.folder.join("link/deeper")] {
        assert!(
            ForeignDir::in_root_of(this_process(), &path).is_err(),
            "{path:?}"
        );
        assert!(walk_below(&root, &path).is_err(), "{path:?}");
    }
    assert!(walk_below(&root, &trap.folder.join("../treasure")).is_err());
    let folder = ForeignDir::own(&trap.folder).unwrap();
    assert!(folder.folder("link").is_err());
    assert!(ForeignDir::own(&trap.folder.join("link")).is_err());
}

#[test]
fn what_is_no_name_is_refused() {
    let trap = trap();
    let folder = ForeignDir::own(&trap.folder).unwrap();
    for name in ["", ".", "..", "link/script", "/etc/passwd"] {
        assert!(folder.make_file(name, 0o600).is_err(), "{name}");
        assert!(folder.remove_file(name).is_err(), "{name}");
        assert!(folder.rename("link", name).is_err(), "{name}");
        assert!(folder.remove_all(name).is_err(), "{name}");
        assert!(!folder.has(name), "{name}");
    }
    assert!(trap.treasure.join("script").exists());
}

#[test]
fn removing_all_stays_inside() {
    let trap = trap();
    let inner = trap.folder.join("inner");
    fs::create_dir_all(inner.join("deeper")).unwrap();
    fs::write(inner.join("deeper/file"), "").unwrap();
    symlink(&trap.treasure, inner.join("deeper/link")).unwrap();
    let folder = ForeignDir::own(&trap.folder).unwrap();
    folder.remove_all("inner").unwrap();
    folder.remove_all("link").unwrap();
    folder.remove_all("link").unwrap();
    assert_eq!(folder.names().unwrap(), [""; 0]);
    assert!(trap.treasure.join("script").exists());
}

#[test]
fn only_plain_files_are_opened() {
    let trap = trap();
    let folder = ForeignDir::own(&trap.folder).unwrap();
    let pipe = trap.folder.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    symlink(trap.treasure.join("script"), trap.folder.join("file")).unwrap();
    for name in ["pipe", "file", "link"] {
        assert!(folder.file(name).is_err(), "{name}");
        assert!(folder.make_file(name, 0o600).is_err(), "{name}");
        assert!(folder.make_folder(name).is_err(), "{name}");
        assert!(folder.has(name), "{name}");
    }
    folder.make_file("plain", 0o600).unwrap();
    folder.file("plain").unwrap();
}

#[test]
fn as_another_user_root_can_do_no_more_than_that_user() {
    if !identity::is_root() {
        return;
    }
    let keep = TempDir::new().unwrap();
    let (closed, open) = (keep.path().join("closed"), keep.path().join("open"));
    for (path, mode) in [(&closed, 0o755), (&open, 0o777)] {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    fs::write(closed.join("file"), "").unwrap();
    let nobody = |path: &Path| ForeignDir {
        user: identity::tests::nobody(),
        ..ForeignDir::own(path).unwrap()
    };
    let closed = nobody(&closed);
    assert!(closed.make_folder("made").is_err());
    assert!(closed.make_file("made", 0o600).is_err());
    assert!(closed.remove_file("file").is_err());
    assert!(closed.remove_all("file").is_err());
    assert!(closed.rename("file", "other").is_err());
    let made = nobody(&open).make_folder("made").unwrap();
    assert_eq!(made.stat().unwrap().st_uid, 65534);
    let file = made.make_file("file", 0o600).unwrap();
    assert_eq!(file.metadata().unwrap().uid(), 65534);
}
