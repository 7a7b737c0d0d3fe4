//! Processes as `/proc` shows them.

use std::fs;
use std::path::PathBuf;

use probing_proto::env;
use probing_proto::process::{Pid, ProcessKey, Stat};

use crate::error::ClientError;

/// One process, read once.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// Its pid as it sees it itself: another one inside a container.
    pub(crate) own_pid: Pid,
    pub(crate) stat: Stat,
    /// Its user and group, as seen from here.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Its user as it sees it itself: another one inside a user namespace.
    pub(crate) own_uid: u32,
    pub(crate) command: Vec<String>,
    /// Its variables when it started; empty when we may not read them.
    pub(crate) environ: Vec<u8>,
    /// `None`: not Python.
    pub(crate) python: Option<PythonVersion>,
}

/// The version as file names tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PythonVersion {
    Known(String),
    Unknown,
}

impl Process {
    /// Reads process `pid`.
    pub(crate) fn read(pid: Pid) -> Result<Self, ClientError> {
        let gone = || ClientError::NoSuchProcess { pid };
        let stat = stat(pid).filter(|stat| !stat.is_dead()).ok_or_else(gone)?;
        let status = read(pid, "status");
        let uid = effective(&status, "Uid:").ok_or_else(gone)?;
        Ok(Self {
            pid,
            own_pid: innermost_pid(&status).unwrap_or(pid),
            stat,
            uid,
            gid: effective(&status, "Gid:").ok_or_else(gone)?,
            own_uid: inside(uid, &read(pid, "uid_map")),
            command: command(&read(pid, "cmdline"), &read(pid, "comm")),
            environ: read(pid, "environ"),
            python: python_version(pid),
        })
    }

    /// The process as its folder is named.
    pub(crate) fn key(&self) -> ProcessKey {
        ProcessKey {
            pid: self.own_pid,
            start_ticks: self.stat.start_ticks,
        }
    }

    /// The process as it is seen from here.
    pub(crate) fn seen_key(&self) -> ProcessKey {
        ProcessKey {
            pid: self.pid,
            start_ticks: self.stat.start_ticks,
        }
    }

    pub(crate) fn rank(&self) -> Option<u32> {
        env::rank(|variable| variable.value_in(&self.environ))
    }

    /// Its rank, and how much the variable that says so counts: 0 most.
    pub(crate) fn rank_claim(&self) -> Option<(u32, usize)> {
        env::rank_claim(|variable| variable.value_in(&self.environ))
    }

    pub(crate) fn age_seconds(&self) -> u64 {
        let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec as u64;
        uptime.saturating_sub(self.stat.start_ticks / rustix::param::clock_ticks_per_second())
    }

    /// Whether `name` is what people call it: its script, its module or its program.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.command
            .iter()
            .any(|word| word == name || word.rsplit('/').next() == Some(name))
    }

    /// Whether it sees other files than we do: in a container, or below another root.
    pub(crate) fn sees_other_files(&self) -> bool {
        let differs = |file: &str| {
            let own = fs::read_link(format!("/proc/self/{file}"));
            let theirs = fs::read_link(proc(self.pid, file));
            matches!((own, theirs), (Ok(own), Ok(theirs)) if own != theirs)
        };
        differs("ns/mnt") || differs("root")
    }
}

/// All Python processes, in the order of their pids. Those that end meanwhile are left out.
pub(crate) fn all_python() -> Vec<Process> {
    let mut pids: Vec<Pid> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.into_iter()
        .filter_map(|pid| Process::read(pid).ok())
        .filter(|process| process.python.is_some())
        .collect()
}

/// Whether the process that `key` names lives, as seen from here.
pub(crate) fn is_alive(key: ProcessKey) -> bool {
    stat(key.pid).is_some_and(|stat| stat.start_ticks == key.start_ticks && !stat.is_dead())
}

/// Who started it, as seen from here.
pub(crate) fn parent(pid: Pid) -> Option<Pid> {
    stat(pid).map(|stat| stat.parent)
}

pub(crate) fn proc(pid: Pid, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

fn stat(pid: Pid) -> Option<Stat> {
    Stat::parse(&String::from_utf8_lossy(&read(pid, "stat")))
}

/// A file of `/proc/<pid>`; empty when it is not to be had.
fn read(pid: Pid, file: &str) -> Vec<u8> {
    fs::read(proc(pid, file)).unwrap_or_default()
}

fn command(cmdline: &[u8], comm: &[u8]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match cmdline.strip_suffix(b"\0").unwrap_or(cmdline) {
        [] => vec![text(comm.trim_ascii_end())],
        words => words.split(|&byte| byte == 0).map(text).collect(),
    }
}

/// The effective id in a line of `/proc/<pid>/status`: the second of four.
fn effective(status: &[u8], name: &str) -> Option<u32> {
    line_of(status, name)?
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// What the innermost user namespace calls `uid`, by its `uid_map` (lines of: first inside, first outside, count).
fn inside(uid: u32, uid_map: &[u8]) -> u32 {
    let map = String::from_utf8_lossy(uid_map);
    let mapped = map.lines().find_map(|line| {
        let mut numbers = line
            .split_ascii_whitespace()
            .map(|number| number.parse::<u32>().ok());
        let (inside, outside, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let offset = uid.checked_sub(outside).filter(|offset| *offset < count)?;
        inside.checked_add(offset)
    });
    mapped.unwrap_or(uid)
}

fn line_of(status: &[u8], name: &str) -> Option<String> {
    let status = String::from_utf8_lossy(status);
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::to_owned)
}

fn innermost_pid(status: &[u8]) -> Option<Pid> {
    line_of(status, "NSpid:")?
        .split_ascii_whitespace()
        .next_back()?
        .parse()
        .ok()
}

/// Python when its program is called so or it has loaded libpython.
fn python_version(pid: Pid) -> Option<PythonVersion> {
    let program = fs::read_link(proc(pid, "exe"))
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_default();
    let is_python = program.starts_with("python");
    if let Some(version) = version_in(&program) {
        return is_python.then_some(PythonVersion::Known(version));
    }
    let maps = read(pid, "maps");
    let maps = String::from_utf8_lossy(&maps);
    let mut libraries = maps
        .lines()
        .filter_map(|line| line.rsplit('/').next())
        .filter(|name| name.starts_with("libpython"));
    match libraries.find_map(version_in) {
        Some(version) => Some(PythonVersion::Known(version)),
        None => is_python.then_some(PythonVersion::Unknown),
    }
}

/// The `3.12` in `python3.12` or `libpython3.12.so.1.0`.
fn version_in(file_name: &str) -> Option<String> {
    let (_, rest) = file_name.split_once("python3.")?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!minor.is_empty()).then(|| format!("3.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_file_names() {
        assert_eq!(version_in("python3.12").as_deref(), Some("3.12"));
        assert_eq!(version_in("libpython3.13t.so.1.0").as_deref(), Some("3.13"));
        assert_eq!(version_in("python3"), None);
        assert_eq!(version_in("python3."), None);
        assert_eq!(version_in("bash"), None);
    }

    #[test]
    fn a_command_line_falls_back_to_the_short_name() {
        assert_eq!(
            command(b"python\0train.py\0\0", b"python\n"),
            ["python", "train.py", ""]
        );
        assert_eq!(command(b"", b"kthreadd\n"), ["kthreadd"]);
    }

    #[test]
    fn the_user_inside_a_namespace_is_mapped() {
        assert_eq!(inside(1000, b"         0          0 4294967295\n"), 1000);
        assert_eq!(inside(100_033, b"0 100000 65536\n"), 33);
        assert_eq!(inside(1000, b"0 100000 65536\n"), 1000);
        assert_eq!(inside(1000, b""), 1000);
        assert_eq!(effective(b"Name:\tx\nUid:\t1\t2\t3\t4\n", "Uid:"), Some(2));
    }

    #[test]
    fn the_pid_inside_a_container_is_the_last_one() {
        assert_eq!(
            innermost_pid(b"Name:\tx\nNSpid:\t4242\t17\nPPid:\t1\n"),
            Some(Pid(17))
        );
        assert_eq!(innermost_pid(b"Name:\tx\n"), None);
    }
}
