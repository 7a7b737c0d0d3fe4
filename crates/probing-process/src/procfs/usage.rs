//! The resource usage of a process or a thread, as the kernel counts it.

use probing_proto::process::Pid;

use crate::procfs::threads::Tid;
use crate::read_text;

/// Counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub user_nanos: u64,
    pub system_nanos: u64,
    /// Page faults that had to wait for a disk.
    pub major_faults: u64,
    /// The CPU that it ran on last.
    pub processor: u32,
    /// Of the whole process, in bytes.
    pub virtual_bytes: u64,
    pub resident_bytes: u64,
    /// How often it gave up its CPU by itself, and how often it was made to; 0 when not known.
    pub waits: u64,
    pub preemptions: u64,
}

impl Usage {
    pub fn of(pid: Pid) -> Option<Self> {
        Self::parse(&read_text(pid, "stat")?, &read_text(pid, "status")?)
    }

    pub fn of_thread(pid: Pid, tid: Tid) -> Option<Self> {
        let file = |name: &str| read_text(pid, &format!("task/{tid}/{name}"));
        Self::parse(&file("stat")?, &file("status")?)
    }

    /// The name in `stat` may contain spaces and parentheses, so fields count from its end.
    fn parse(stat: &str, status: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let ticks = |index| Some(field(index)?.saturating_mul(nanos_per_tick()));
        let counted = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse().ok())
        };
        Some(Self {
            user_nanos: ticks(11)?,
            system_nanos: ticks(12)?,
            major_faults: field(9)?,
            processor: field(36)?.try_into().ok()?,
            virtual_bytes: field(20)?,
            resident_bytes: field(21)?.saturating_mul(rustix::param::page_size() as u64),
            waits: counted("voluntary_ctxt_switches").unwrap_or(0),
            preemptions: counted("nonvoluntary_ctxt_switches").unwrap_or(0),
        })
    }
}

fn nanos_per_tick() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &str = "42 (a b) c) S 1 42 1 0 -1 4194560 100 0 7 0 250 50 0 0 20 0 3 0 81733 1000000 25 \
        18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 5 0 0";

    #[test]
    fn what_was_used_is_read() {
        let status = "Name:\tpy\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let usage = Usage::parse(STAT, status).unwrap();
        let tick = nanos_per_tick();
        assert_eq!(
            (usage.user_nanos, usage.system_nanos),
            (250 * tick, 50 * tick)
        );
        assert_eq!((usage.major_faults, usage.processor), (7, 5));
        assert_eq!(usage.virtual_bytes, 1_000_000);
        assert_eq!(usage.resident_bytes, 25 * rustix::param::page_size() as u64);
        assert_eq!((usage.waits, usage.preemptions), (12, 3));
        assert_eq!(Usage::parse("42 (py) S 1 2", status), None);
    }

    #[test]
    fn this_process_has_used_something() {
        let pid = Pid(std::process::id());
        assert!(Usage::of(pid).unwrap().resident_bytes > 0);
        assert!(Usage::of_thread(pid, Tid::main_of(pid)).is_some());
    }

    proptest! {
        #[test]
        fn any_text_is_survived(stat in "[()0-9 -]{0,200}", status in "(?s).{0,80}") {
            Usage::parse(&stat, &status);
        }
    }
}
