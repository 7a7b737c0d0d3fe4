//! The verdict on collectives as text: lines for each group, then the delay of each rank.

use probing_client::{Group, TargetLabel};
use probing_proto::process::Pid;
use probing_proto::report::{CollectivesReport, GroupReport, JobReport, Operation, Verdict};
use probing_proto::text::visible;

/// Younger than this, a job may simply be running.
const SOON_SECONDS: f64 = 1.0;

pub(super) fn lines(report: &CollectivesReport) -> Vec<String> {
    if let [only] = report.jobs.as_slice() {
        return of_job(only);
    }
    let mut lines = Vec::new();
    for job in &report.jobs {
        lines.push(named(job));
        let own = of_job(job).into_iter();
        lines.extend(own.map(|line| format!("  {line}").trim_end().to_owned()));
    }
    lines
}

/// `job node7:29500 (pids 4242,4243)`
fn named(job: &JobReport) -> String {
    let pid = |pid: &u64| {
        u32::try_from(*pid)
            .ok()
            .map(|pid| TargetLabel::Pid(Pid(pid)))
    };
    let pids: Vec<TargetLabel> = job.pids.iter().filter_map(pid).collect();
    let pids: Group = pids.iter().collect();
    let name = job
        .job
        .as_deref()
        .unwrap_or("without a known rendezvous address");
    format!("job {name} ({pids})")
}

fn of_job(report: &JobReport) -> Vec<String> {
    let mut lines: Vec<String> = report.groups.iter().flat_map(group).collect();
    if !report.claimed_twice.is_empty() {
        let whose = ranks(&report.claimed_twice);
        lines.push(format!(
            "several processes have {whose}: of jobs that cannot be distinguished, or of a job that was restarted"
        ));
        lines.push("  hint: name the processes of one job: -t PID,PID".to_owned());
    }
    if !report.lateness.is_empty() {
        lines.push(String::new());
        lines.push(format!(
            "{:>5}  {:>10}  {:>10}  {:>12}  {:>12}",
            "RANK", "OPERATIONS", "CAME LAST", "LATE BY", "AT MOST"
        ));
    }
    for late in &report.lateness {
        lines.push(format!(
            "{:>5}  {:>10}  {:>10}  {:>12}  {:>12}",
            late.rank,
            late.operations,
            late.last,
            millis(late.median_seconds),
            millis(late.most_seconds)
        ));
    }
    if let (Some(rank), Some(first)) = (report.straggler, report.lateness.first()) {
        lines.push(format!(
            "straggler: rank {rank}, the last in {} of {} operations",
            first.last, first.operations
        ));
    }
    if report.several_hosts {
        lines.push("times of several machines are compared by their own clocks".to_owned());
    }
    lines
}

fn group(group: &GroupReport) -> Vec<String> {
    let mut lines = Vec::new();
    let name = &group.group_name;
    let known = group.ranks.len() as i64;
    let are_all = known >= group.group_size;
    let all = if are_all { "all" } else { "these" };
    if !are_all {
        let size = group.group_size;
        lines.push(format!(
            "group {name}: rows of {known} of its {size} ranks: {}",
            ranks(&group.ranks)
        ));
    }
    let has_ended = |ranks: &[i64]| ranks.iter().all(|rank| group.ended.contains(rank));
    match &group.verdict {
        Verdict::InStep { seq } => {
            lines.push(format!("group {name}: in step, {all} have done #{seq}"));
        }
        Verdict::Absent {
            ranks: absent,
            waiting,
            operation,
            last,
            waited_seconds,
        } => {
            let waited = if has_ended(waiting) {
                format!("waited when {} ended", it(waiting))
            } else {
                let perhaps = perhaps(*waited_seconds);
                format!("{} waited for {waited_seconds:.1} s{perhaps}", has(waiting))
            };
            lines.push(format!(
                "group {name}: {} {} not come to {}, in which {} {waited}",
                ranks(absent),
                has(absent),
                describe_operation(operation),
                ranks(waiting),
            ));
            let last = last.as_ref().map(describe_operation);
            let whose = if absent.len() == 1 { "its" } else { "their" };
            lines.extend(last.map(|last| format!("  {whose} last was {last}")));
        }
        Verdict::Differs { sides } => {
            lines.push(format!("group {name}: ranks run different operations"));
            let sides = sides.iter();
            lines.extend(sides.map(|side| {
                format!(
                    "  {}: {}",
                    ranks(&side.ranks),
                    describe_operation(&side.operation)
                )
            }));
        }
        Verdict::Transport { operation, .. } if has_ended(&group.ranks) => {
            lines.push(format!(
                "group {name}: {all} were in {} when they ended",
                describe_operation(operation)
            ));
        }
        Verdict::Transport {
            operation,
            waited_seconds,
        } => {
            let why = match waited_seconds {
                soon if *soon < SOON_SECONDS => perhaps(*soon),
                _ if are_all => ": the network or the device, not the program",
                _ => ": perhaps other ranks are missing",
            };
            lines.push(format!(
                "group {name}: {all} have been in {} for {waited_seconds:.1} s{why}",
                describe_operation(operation)
            ));
        }
        Verdict::Unaligned { ranks: lost } => {
            lines.push(format!(
                "group {name}: cannot say what it waits for: the numbers of {} do not match those of the others",
                ranks(lost)
            ));
            lines.push(
                "  hint: record from the start on, with PROBING_TORCH=collectives, on all ranks"
                    .to_owned(),
            );
        }
    }
    if !group.ended.is_empty() {
        lines.push(format!("  ended: {}", ranks(&group.ended)));
    }
    lines
}

fn it(ranks: &[i64]) -> &'static str {
    if ranks.len() == 1 { "it" } else { "they" }
}

fn has(ranks: &[i64]) -> &'static str {
    if ranks.len() == 1 { "has" } else { "have" }
}

fn perhaps(waited_seconds: f64) -> &'static str {
    if waited_seconds < SOON_SECONDS {
        " (it may be about to come)"
    } else {
        ""
    }
}

/// `allreduce #13 [3] float32 at hang (train.py:45)`
fn describe_operation(operation: &Operation) -> String {
    let mut text = format!("{} #{}", operation.op, operation.seq);
    for word in [Some(&operation.shapes), operation.dtype.as_ref()]
        .into_iter()
        .flatten()
    {
        if !word.is_empty() {
            text.push(' ');
            text.push_str(word);
        }
    }
    if let (Some(func), Some(file), Some(lineno)) =
        (&operation.func, &operation.file, operation.lineno)
    {
        let file = file.rsplit('/').next().unwrap_or(file);
        text.push_str(&format!(" at {func} ({file}:{lineno})"));
    }
    visible::line(&text).into_owned()
}

fn ranks(ranks: &[i64]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let numbers: Vec<String> = ranks.iter().map(i64::to_string).collect();
    format!("{word} {}", numbers.join(","))
}

fn millis(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1e3)
}
