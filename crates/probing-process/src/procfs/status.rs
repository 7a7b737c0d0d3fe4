//! Fields of `/proc/<pid>/status` of a process or a thread.

use probing_proto::process::Pid;

use crate::access::source::Kernel;
use crate::procfs::threads::Tid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    pub process: Pid,
    /// Its id in its own pid namespace: another one inside a container.
    pub id_inside: u32,
    /// The kernel names the thread that traces, not its process.
    tracer_thread: Option<Pid>,
    /// Whom the files that it makes belong to, as seen from here.
    pub uid: u32,
    pub gid: u32,
    /// How many filters of system calls (seccomp) it runs under.
    pub filters: u32,
    /// One bit for each signal that is blocked.
    pub blocked: u64,
    /// One bit for each signal that has a handler.
    pub caught: u64,
}

impl Status {
    pub fn of(process: impl Kernel) -> Option<Self> {
        Self::parse(&process.text("status")?)
    }

    pub fn of_thread(process: impl Kernel, tid: Tid) -> Option<Self> {
        Self::parse(&process.text(&format!("task/{tid}/status"))?)
    }

    pub fn tracer(&self) -> Option<Pid> {
        let thread = self.tracer_thread?;
        Some(Self::of(thread).map_or(thread, |tracer| tracer.process))
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|value| value.split_ascii_whitespace())
        };
        // Uid and Gid: real, effective, saved, file system. The last is the effective one for all but file servers.
        let last = |name| field(name)?.nth(3)?.parse().ok();
        let number = |name| field(name)?.next()?.parse().ok();
        let signals = |name| u64::from_str_radix(field(name)?.next()?, 16).ok();
        // Before Linux 5.9 it only tells that there is one.
        let is_filtered = number("Seccomp") == Some(2);
        let filters = number("Seccomp_filters").or(is_filtered.then_some(1));
        Some(Self {
            process: Pid(field("Tgid")?.next()?.parse().ok()?),
            id_inside: field("NSpid").or(field("Pid"))?.last()?.parse().ok()?,
            tracer_thread: field("TracerPid")?
                .next()?
                .parse()
                .ok()
                .filter(|pid| *pid != 0)
                .map(Pid),
            uid: last("Uid")?,
            gid: last("Gid")?,
            filters: filters.unwrap_or(0),
            blocked: signals("SigBlk")?,
            caught: signals("SigCgt")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_status_is_read() {
        let text = "Name:\tpy\nTgid:\t42\nPid:\t43\nTracerPid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nNSpid:\t43\t2\nSigBlk:\t0000000000000005\nSigCgt:\t0000000000000010\n";
        let status = Status::parse(text).unwrap();
        assert_eq!(
            (status.process, status.tracer_thread),
            (Pid(42), Some(Pid(7)))
        );
        assert_eq!(status.id_inside, 2);
        assert_eq!((status.uid, status.gid), (4, 8));
        assert_eq!((status.blocked, status.caught), (5, 0x10));
        assert_eq!(Status::parse("Name:\tpy\n"), None);
        let old = text.replace("NSpid:\t43\t2\n", "");
        assert_eq!(Status::parse(&old).unwrap().id_inside, 43);
        assert_eq!(status.filters, 0);
        let filtered = format!("{text}Seccomp:\t2\n");
        assert_eq!(Status::parse(&filtered).unwrap().filters, 1);
        let counted = format!("{filtered}Seccomp_filters:\t3\n");
        assert_eq!(Status::parse(&counted).unwrap().filters, 3);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(?s)((Tgid|Uid|NSpid|SigBlk|SigCgt|.{0,5}):.{0,20}\n){0,8}") {
            Status::parse(&text);
        }
    }
}
