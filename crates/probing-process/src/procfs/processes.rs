//! Processes as `/proc` shows them.

use std::fs;
use std::io::ErrorKind;

use probing_proto::env;
use probing_proto::process::{Pid, ProcessKey, Stat};

use crate::procfs::maps::{self, Mapping};
use crate::procfs::status::Status;
use crate::{proc, python, read, read_text};

/// One process, read once.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: Pid,
    /// Its pid as it sees it itself: another one inside a container.
    pub own_pid: Pid,
    pub stat: Stat,
    /// When it started, as it sees it itself: at another time inside a time namespace.
    pub own_start_ticks: u64,
    /// It is in another time namespace: its start is rounded elsewhere, and may be a tick more or less.
    has_other_clock: bool,
    /// Its user and group, as seen from here.
    pub uid: u32,
    pub gid: u32,
    /// Its user as it sees it itself: another one inside a user namespace.
    pub own_uid: u32,
    pub command: Vec<String>,
    /// Its variables when it started; empty when we may not read them.
    pub environ: Vec<u8>,
    /// `None`: not Python.
    pub python: Option<PythonVersion>,
}

/// The version as file names tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PythonVersion {
    Known(u8, u8),
    Unknown,
}

impl Process {
    /// Reads process `pid`; `None` for one that has ended, or never was.
    pub fn read(pid: Pid) -> Option<Self> {
        let stat = stat(pid).filter(|stat| !stat.is_dead())?;
        let status = Status::of(pid)?;
        let file = |name| read(pid, name).unwrap_or_default();
        let command = command(&file("cmdline"), &file("comm"));
        let other_clock = clock_ahead(pid);
        Some(Self {
            pid,
            own_pid: Pid(status.id_inside),
            stat,
            own_start_ticks: stat
                .start_ticks
                .saturating_add_signed(other_clock.unwrap_or_default()),
            has_other_clock: other_clock.is_some(),
            uid: status.uid,
            gid: status.gid,
            own_uid: inside(status.uid, &file("uid_map")),
            environ: file("environ"),
            python: python_version(pid, &command),
            command,
        })
    }

    /// Whether it is not for us to know what program it runs.
    pub fn is_hidden(&self) -> bool {
        is_hidden(self.pid)
    }

    /// The process as its folder is named.
    pub fn key(&self) -> ProcessKey {
        ProcessKey {
            pid: self.own_pid,
            start_ticks: self.own_start_ticks,
        }
    }

    /// Whether a key that the process tells of itself, or names its folder by, is its own.
    pub fn has_key(&self, key: ProcessKey) -> bool {
        self.keys().any(|own| own == key)
    }

    /// The keys by which its folder may be named, the most likely first.
    pub fn keys(&self) -> impl Iterator<Item = ProcessKey> {
        let own = self.key();
        let rounded: &[i64] = if self.has_other_clock {
            &[0, 1, -1]
        } else {
            &[0]
        };
        rounded.iter().map(move |&ticks| ProcessKey {
            start_ticks: own.start_ticks.saturating_add_signed(ticks),
            ..own
        })
    }

    /// The process as it is seen from here.
    pub fn seen_key(&self) -> ProcessKey {
        ProcessKey {
            pid: self.pid,
            start_ticks: self.stat.start_ticks,
        }
    }

    pub fn rank(&self) -> Option<u32> {
        env::rank(|variable| variable.value_in(&self.environ))
    }

    /// Its rank, and how much the variable that says so counts: 0 most.
    pub fn rank_claim(&self) -> Option<(u32, usize)> {
        env::rank_claim(|variable| variable.value_in(&self.environ))
    }

    /// How many ranks its job has.
    pub fn world_size(&self) -> Option<u32> {
        env::world_size(|variable| variable.value_in(&self.environ))
    }

    pub fn age_seconds(&self) -> u64 {
        let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec as u64;
        uptime.saturating_sub(self.stat.start_ticks / rustix::param::clock_ticks_per_second())
    }

    /// Whether `name` is what people call it: its script, its module or its program.
    pub fn is_named(&self, name: &str) -> bool {
        self.command
            .iter()
            .any(|word| word == name || word.rsplit('/').next() == Some(name))
    }

    /// Whether it sees other files than we do: in a container, or below another root.
    pub fn sees_other_files(&self) -> bool {
        let differs = |file: &str| {
            let own = fs::read_link(format!("/proc/self/{file}"));
            let theirs = fs::read_link(proc(self.pid, file));
            matches!((own, theirs), (Ok(own), Ok(theirs)) if own != theirs)
        };
        differs("ns/mnt") || differs("root")
    }
}

/// All Python processes, in the order of their pids. Those that end meanwhile are left out.
pub fn all_python() -> Vec<Process> {
    let mut pids: Vec<Pid> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.into_iter()
        .filter_map(Process::read)
        .filter(|process| process.python.is_some())
        .collect()
}

/// The Python process that calls itself so: in a container, or here.
pub fn with_key(key: ProcessKey) -> Option<Process> {
    let is_it = |process: &Process| process.has_key(key);
    let here = Process::read(key.pid).filter(is_it);
    here.or_else(|| all_python().into_iter().find(is_it))
}

fn is_hidden(pid: Pid) -> bool {
    fs::read_link(proc(pid, "exe")).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// Whether the process has ended and is only still listed.
pub fn is_dead(pid: Pid) -> bool {
    stat(pid).is_some_and(Stat::is_dead)
}

/// Whether the process that `key` names lives, as seen from here.
pub fn is_alive(key: ProcessKey) -> bool {
    stat(key.pid).is_some_and(|stat| stat.start_ticks == key.start_ticks && !stat.is_dead())
}

/// Who started it, as seen from here.
pub fn parent(pid: Pid) -> Option<Pid> {
    stat(pid).map(|stat| stat.parent)
}

fn stat(pid: Pid) -> Option<Stat> {
    Stat::parse(&read_text(pid, "stat")?)
}

fn command(cmdline: &[u8], comm: &[u8]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match cmdline.strip_suffix(b"\0").unwrap_or(cmdline) {
        [] => vec![text(comm.trim_ascii_end())],
        words => words.split(|&byte| byte == 0).map(text).collect(),
    }
}

/// What the clock of a process in another time namespace is ahead of ours, in ticks. The kernel adds that to the start time
/// that the process reads of itself, before it rounds.
fn clock_ahead(pid: Pid) -> Option<i64> {
    let namespace = |file: String| fs::read_link(file).ok();
    let its = namespace(format!("/proc/{pid}/ns/time"));
    // None where the kernel has no such namespaces, or does not tell.
    if its.is_none() || its == namespace("/proc/self/ns/time".to_owned()) {
        return None;
    }
    let ticks = |offsets: Option<String>| boot_offset_ticks(&offsets.unwrap_or_default());
    let ahead = ticks(read_text(pid, "timens_offsets"));
    let ours = ticks(fs::read_to_string("/proc/self/timens_offsets").ok());
    Some(ahead.saturating_sub(ours))
}

/// How far a namespace's clock since boot is ahead, by its `timens_offsets` (lines of: clock, seconds, nanoseconds).
fn boot_offset_ticks(offsets: &str) -> i64 {
    let offset = offsets.lines().find_map(|line| {
        let numbers = line.strip_prefix("boottime")?;
        let mut numbers = numbers.split_ascii_whitespace().map(str::parse::<i64>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    let (seconds, nanos) = offset.unwrap_or_default();
    let per_second = rustix::param::clock_ticks_per_second() as i64;
    let rest = nanos.saturating_mul(per_second) / 1_000_000_000;
    seconds.saturating_mul(per_second).saturating_add(rest)
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

/// Python when its program is called so or it has loaded libpython. Of one that is hidden its own word must do.
fn python_version(pid: Pid, command: &[String]) -> Option<PythonVersion> {
    let path = match fs::read_link(proc(pid, "exe")) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => command.first()?.into(),
        path => path.unwrap_or_default(),
    };
    let program = path.file_name().unwrap_or_default().to_string_lossy();
    let is_python = program.starts_with("python");
    if let Some((major, minor)) = python::version_in(&program) {
        return is_python.then_some(PythonVersion::Known(major, minor));
    }
    let maps = maps::read_maps(pid).unwrap_or_default();
    let mut libraries = maps
        .iter()
        .map(Mapping::name)
        .filter(|name| name.starts_with("libpython"));
    match libraries.find_map(python::version_in) {
        Some((major, minor)) => Some(PythonVersion::Known(major, minor)),
        None => is_python.then_some(PythonVersion::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_falls_back_to_the_short_name() {
        assert_eq!(
            command(b"python\0train.py\0\0", b"python\n"),
            ["python", "train.py", ""]
        );
        assert_eq!(command(b"", b"kthreadd\n"), ["kthreadd"]);
    }

    #[test]
    fn the_clock_of_a_time_namespace_is_ahead_or_behind() {
        let per_second = rustix::param::clock_ticks_per_second() as i64;
        let text = "monotonic           5         0\nboottime         7000 500000000\n";
        assert_eq!(boot_offset_ticks(text), 7000 * per_second + per_second / 2);
        assert_eq!(boot_offset_ticks("boottime -1 0\n"), -per_second);
        assert_eq!(boot_offset_ticks("boottime x\n"), 0);
        assert_eq!(boot_offset_ticks(""), 0);
    }

    #[test]
    fn a_start_by_another_clock_may_be_a_tick_off() {
        let key = |ticks| ProcessKey {
            start_ticks: ticks,
            ..Process::read(Pid(std::process::id())).unwrap().key()
        };
        let process = |has_other_clock| Process {
            own_start_ticks: 1000,
            has_other_clock,
            ..Process::read(Pid(std::process::id())).unwrap()
        };
        for (ticks, is_it) in [
            (998, false),
            (999, true),
            (1000, true),
            (1001, true),
            (1002, false),
        ] {
            assert_eq!(process(true).has_key(key(ticks)), is_it, "{ticks}");
            assert_eq!(process(false).has_key(key(ticks)), ticks == 1000, "{ticks}");
        }
        assert_eq!(process(true).keys().next(), Some(key(1000)));
    }

    #[test]
    fn the_user_inside_a_namespace_is_mapped() {
        assert_eq!(inside(1000, b"         0          0 4294967295\n"), 1000);
        assert_eq!(inside(100_033, b"0 100000 65536\n"), 33);
        assert_eq!(inside(1000, b"0 100000 65536\n"), 1000);
        assert_eq!(inside(1000, b""), 1000);
    }
}
