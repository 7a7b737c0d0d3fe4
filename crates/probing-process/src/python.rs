//! Finds the file that is a process's Python: its program or its libpython.
//!
//! Everything comes from the target's own files under `/proc/<pid>/root`, so containers need no special care,
//! and from exported symbols, so a stripped or statically linked Python serves as well.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use probing_proto::process::Pid;

use crate::access::source::Files;
use crate::elf::{Bytes, Image};
use crate::proc;
use crate::procfs::maps::Mapping;

/// A file that may hold an interpreter, and where it is in the target's memory.
#[derive(Debug)]
pub struct Library {
    image: Image<Box<dyn Bytes>>,
    bias: u64,
    name: String,
}

impl Library {
    /// Every such file of the process, the likeliest first.
    pub fn candidates(files: impl Files, maps: &[Mapping]) -> impl Iterator<Item = Self> {
        candidates(&files, maps)
            .into_iter()
            .filter_map(move |mapping| Self::mapped(&files, mapping))
    }

    /// The file that holds a module in C: its own, whose name begins so, or the interpreter that it is built into.
    pub fn of_module(
        files: impl Files,
        maps: &[Mapping],
        name: &str,
    ) -> impl Iterator<Item = Self> {
        let is_its_own = move |mapping: &&Mapping| {
            let rest = mapping.name().strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        let own = maps.iter().find(is_its_own);
        let own = own.and_then(|mapping| Self::mapped(&files, mapping));
        own.into_iter().chain(Self::candidates(files, maps))
    }

    fn mapped(files: &impl Files, mapping: &Mapping) -> Option<Self> {
        let image = Image::parse(files.contents(mapping)?)?;
        Some(Self {
            bias: image.bias(mapping.start, mapping.offset)?,
            image,
            name: mapping.name().to_owned(),
        })
    }

    /// Addresses in the target's memory of exported symbols, in the order of `names`.
    pub fn exported<const N: usize>(&self, names: [&str; N]) -> Option<[Option<u64>; N]> {
        let found = self.image.exported(names)?;
        Some(found.map(|address| Some(self.bias.wrapping_add(address?))))
    }

    /// Address of the section that holds `_PyRuntime`, for a Python that exports nothing.
    pub fn runtime_section(&self) -> Option<u64> {
        self.section(".PyRuntime")
    }

    /// Address of a section, by its name.
    pub fn section(&self, name: &str) -> Option<u64> {
        Some(self.bias.wrapping_add(self.image.section_named(name)?))
    }

    /// `Py_Version` exists from 3.11 on; before it, one function that came with 3.10 tells, and the file's name.
    pub fn version(&self, read_u32: impl FnOnce(u64) -> Option<u32>) -> (u8, u8) {
        let found = self.exported(["Py_Version", "PyModule_AddObjectRef"]);
        let [version, since_3_10] = found.unwrap_or_default();
        if let Some(hex) = version.and_then(read_u32) {
            return ((hex >> 24) as u8, (hex >> 16) as u8);
        }
        if since_3_10.is_some() {
            return (3, 10);
        }
        version_in(&self.name).unwrap_or((3, 0))
    }
}

/// The version in a file's name: `libpython3.9.so.1.0`, `python2.7`.
pub fn version_in(name: &str) -> Option<(u8, u8)> {
    let (_, rest) = name.split_once("python")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The first mapping of every file that may hold an interpreter, the likeliest first.
fn candidates<'a>(files: &impl Files, maps: &'a [Mapping]) -> Vec<&'a Mapping> {
    let program = files.program().unwrap_or_default();
    let program = program.to_string_lossy();
    let mut found: Vec<(u8, &Mapping)> = Vec::new();
    for mapping in maps.iter().filter(|mapping| mapping.is_file()) {
        let rank = match mapping.name() {
            name if name.starts_with("libpython") => 0,
            _ if mapping.path == program => 1,
            name if name.contains("python") => 2,
            _ => continue,
        };
        if found.iter().all(|(_, seen)| seen.path != mapping.path) {
            found.push((rank, mapping));
        }
    }
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, mapping)| mapping).collect()
}

/// The file behind a mapping. After an upgrade its path is gone, but the kernel still has the file.
pub fn open(pid: Pid, mapping: &Mapping) -> Option<File> {
    let Mapping { start, end, .. } = mapping;
    let kept = || open_plain(&proc(pid, &format!("map_files/{start:x}-{end:x}")));
    let Some(path) = mapping.path.strip_suffix(" (deleted)") else {
        return open_path(pid, Path::new(&mapping.path)).or_else(kept);
    };
    let program = fs::read_link(proc(pid, "exe")).unwrap_or_default();
    let is_program = program.to_string_lossy().starts_with(path);
    kept().or_else(|| open_plain(&proc(pid, "exe")).filter(|_| is_program))
}

/// A file of the process by the path that the kernel tells us, which counts from our own root below a plain `chroot`, and
/// from that of its namespace in a container. The link `root` of the process is told the same way.
pub fn open_path(pid: Pid, path: &Path) -> Option<File> {
    let root = proc(pid, "root");
    let told = fs::read_link(&root).unwrap_or_else(|_| PathBuf::from("/"));
    let same_namespace = || {
        let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
        namespace(Path::new("/proc/self")) == namespace(&proc(pid, ""))
    };
    match path.strip_prefix(told) {
        Ok(inside) => open_plain(&root.join(inside)),
        // It has changed its root after it opened the file.
        Err(_) if same_namespace() => open_plain(path),
        Err(_) => None,
    }
}

/// Opens a regular file, and waits for nothing else.
fn open_plain(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_in_the_name_of_the_file() {
        assert_eq!(version_in("libpython3.9.so.1.0"), Some((3, 9)));
        assert_eq!(version_in("libpython3.13t.so.1.0"), Some((3, 13)));
        assert_eq!(version_in("python3.12"), Some((3, 12)));
        assert_eq!(version_in("python2.7"), Some((2, 7)));
        for name in ["python3", "python3.", "uwsgi", "bash"] {
            assert_eq!(version_in(name), None, "{name}");
        }
    }
}
