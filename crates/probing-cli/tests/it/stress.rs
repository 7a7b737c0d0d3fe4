//! Attach and detach, again and again, whatever the target does; and a command that is killed while it attaches.
//!
//! `make stress` runs the long form and prints how often it worked and how long the target was kept, by what it did
//! and by Python.

use std::collections::BTreeMap;
use std::time::Duration;

use probing_testkit::{CommandResult, Python, Sandbox, Target, Usage, every_python, wait_until};

use crate::sandbox;

/// What targets do: programs under `tests/targets/attach`.
const STATES: [&str; 13] = [
    "sleep",
    "lock_wait",
    "queue_get",
    "poll_wait",
    "epoll_wait",
    "tight_loop",
    "python_work",
    "asyncio_idle",
    "asyncio_busy",
    "malloc_storm",
    "hundred_threads",
    "busy_workers",
    "subprocess_wait",
];
/// The long form has this many cycles in each state on each Python: more than 1,000 with five of them.
const CYCLES: u32 = 16;
const FEW_CYCLES: u32 = 8;
/// How often sizes are taken while a target goes through its cycles.
const LOOKS: u32 = 8;

/// What came of all cycles in one state on one Python.
#[derive(Debug, Default)]
struct Tally {
    failures: Vec<String>,
    paused: Vec<Duration>,
}

impl Tally {
    fn worst(&self) -> Duration {
        self.paused.iter().max().copied().unwrap_or_default()
    }

    fn median(&self) -> Duration {
        let mut paused = self.paused.clone();
        paused.sort_unstable();
        paused.get(paused.len() / 2).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.paused.len() + self.failures.len();
        let millis = |paused: Duration| paused.as_secs_f64() * 1e3;
        write!(
            f,
            "{}/{all} {:.1} {:.1}",
            self.paused.len(),
            millis(self.median()),
            millis(self.worst())
        )
    }
}

/// One target and the commands that come to it.
struct Visited<'a> {
    sandbox: &'a Sandbox,
    target: Target,
    name: String,
}

impl<'a> Visited<'a> {
    fn start(sandbox: &'a Sandbox, python: &Python, state: &str) -> Self {
        let target = sandbox
            .target(python, &format!("attach/{state}.py"))
            .start();
        let (major, minor) = python.version;
        Self {
            sandbox,
            target,
            name: format!("{state} on Python {major}.{minor}"),
        }
    }

    fn probing(&self, arguments: &[&str]) -> CommandResult {
        let pid = self.target.pid().to_string();
        self.sandbox
            .probing([&["-t", pid.as_str()], arguments].concat())
    }

    /// In and out once.
    fn cycle(&self, tally: &mut Tally) {
        let ran = self.probing(&["attach", "--json", "--timeout", "30"]);
        if ran.status != 0 {
            tally.failures.push(format!("{}: {ran:?}", self.name));
            return;
        }
        let paused = ran.json()["paused_seconds"].as_f64().unwrap();
        tally.paused.push(Duration::from_secs_f64(paused));
        let ran = self.probing(&["detach"]);
        assert_eq!(ran.status, 0, "{}: {ran:?}", self.name);
    }

    fn status(&self, field: &str) -> String {
        let status = format!("/proc/{}/status", self.target.pid());
        let text = std::fs::read_to_string(status).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap_or_default().trim().to_owned()
    }

    /// Alive, nobody's tracee, no signal blocked; and it still does what it did: it waits, or it uses its CPU.
    fn assert_goes_on(&mut self) {
        assert!(self.target.lives(), "{} is dead", self.name);
        wait_until(&format!("{} is at home", self.name), || {
            self.status("TracerPid:") == "0" && self.status("SigBlk:") == "0000000000000000"
        });
        let used = self.cpu_ticks();
        wait_until(&format!("{} goes on", self.name), || {
            self.target.state() == 'S' || self.cpu_ticks() > used
        });
    }

    fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.target.pid())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let field = |at| fields.split_ascii_whitespace().nth(at).unwrap();
        field(11).parse::<u64>().unwrap() + field(12).parse::<u64>().unwrap()
    }

    /// When nothing of ours is left in it.
    fn size(&self, threads: u64) -> Size {
        wait_until(&format!("only {} itself is left", self.name), || {
            self.target.usage().threads == threads
        });
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.target.pid())).unwrap();
        Size {
            usage: self.target.usage(),
            mappings: maps.lines().count() as u64,
        }
    }
}

#[derive(Debug)]
struct Size {
    usage: Usage,
    mappings: u64,
}

/// Malloc's arenas and the C library's stacks grow once and stay: what counts is the least that was added between two
/// looks.
fn least_growth(sizes: &[Size], of: impl Fn(&Size) -> u64) -> u64 {
    let growth = |two: &[Size]| of(&two[1]).saturating_sub(of(&two[0]));
    sizes.windows(2).map(growth).min().unwrap_or(0)
}

fn visit(python: &Python, state: &str, cycles: u32) -> Tally {
    let sandbox = sandbox();
    let mut visited = Visited::start(&sandbox, python, state);
    let threads = visited.target.usage().threads;
    let mut tally = Tally::default();
    let mut sizes = Vec::new();
    for _ in 0..LOOKS {
        for _ in 0..cycles / LOOKS {
            visited.cycle(&mut tally);
        }
        sizes.push(visited.size(threads));
    }
    visited.assert_goes_on();
    let grown = (
        least_growth(&sizes, |size| size.usage.open_files as u64),
        least_growth(&sizes, |size| size.mappings),
    );
    assert_eq!(grown, (0, 0), "{}: {sizes:?}", visited.name);
    let resident_kib = least_growth(&sizes, |size| size.usage.rss_kib);
    assert!(resident_kib <= 32, "{}: {sizes:?}", visited.name);
    assert_eq!(sandbox.target_dirs(), [""; 0], "{}", visited.name);
    tally
}

/// Visits every state on every Python; prints the table.
#[expect(clippy::print_stdout, reason = "a report for who runs it")]
fn stress(states: &[&str], cycles: u32) {
    let pythons = Python::all();
    let mut failures = Vec::new();
    let mut all = 0;
    let heads: Vec<String> = pythons
        .iter()
        .map(|python| format!("{}.{}", python.version.0, python.version.1))
        .collect();
    println!("attached / tried, median and worst pause in milliseconds");
    println!("{:<16}{}", "", row(&heads));
    for state in states {
        let tallies: Vec<Tally> = pythons
            .iter()
            .map(|python| visit(python, state, cycles))
            .collect();
        println!("{state:<16}{}", row(&tallies));
        for tally in tallies {
            all += tally.paused.len() + tally.failures.len();
            failures.extend(tally.failures);
        }
    }
    let failed = failures.len();
    println!("{} of {all} attached", all - failed);
    for failure in &failures {
        println!("{failure}");
    }
    // A state in which no thread can be used for a while is refused, and that is no harm; but it is rare.
    assert!(failed * 100 <= all, "{failed} of {all} failed");
}

fn row(cells: &[impl ToString]) -> String {
    cells
        .iter()
        .map(|cell| format!("{:<18}", cell.to_string()))
        .collect()
}

#[test]
fn targets_stay_as_they_were_through_many_visits() {
    stress(&["sleep", "tight_loop", "asyncio_idle"], FEW_CYCLES);
}

#[test]
#[ignore = "takes minutes: `make stress`"]
fn targets_stay_as_they_were_through_a_thousand_visits() {
    stress(&STATES, CYCLES);
}

/// A command that dies at each of its steps in turn. How many there were.
fn kill_at_every_step(python: &Python, state: &str) -> u32 {
    const MORE_THAN_THERE_ARE: u32 = 40;
    const KILLED: i32 = 128 + 9;
    /// Seconds; on a machine that is overloaded what runs in a busy target takes some.
    const PATIENCE: &str = "30";
    let sandbox = sandbox();
    let mut visited = Visited::start(&sandbox, python, state);
    for step in 1..MORE_THAN_THERE_ARE {
        let step_text = step.to_string();
        let die = ["attach", "--timeout", PATIENCE, "--die-at-step", &step_text];
        let ran = visited.probing(&die);
        visited.assert_goes_on();
        // What was on its way may have come in by itself, or is still coming.
        let attach = visited.probing(&["attach", "--timeout", PATIENCE]);
        assert_eq!(
            attach.status, 0,
            "{} after step {step}: {attach:?}",
            visited.name
        );
        let again = visited.probing(&["eval", "6 * 7"]);
        assert_eq!(
            (again.status, again.stdout.as_str()),
            (0, "42\n"),
            "{} after step {step}: {again:?}",
            visited.name
        );
        assert_eq!(visited.probing(&["detach"]).status, 0, "{}", visited.name);
        if ran.status != KILLED {
            assert_eq!(ran.status, 0, "{}: {ran:?}", visited.name);
            assert_eq!(sandbox.target_dirs(), [""; 0], "{}", visited.name);
            return step - 1;
        }
    }
    panic!("{}: always killed", visited.name)
}

#[test]
fn a_command_that_is_killed_at_any_step_harms_nobody() {
    every_python(|python| {
        for state in ["sleep", "tight_loop"] {
            assert!(kill_at_every_step(python, state) > 1);
        }
    });
}

#[test]
#[ignore = "takes minutes: `make stress`"]
fn a_command_that_is_killed_at_any_step_harms_nobody_in_any_state() {
    every_python(|python| {
        let mut steps = BTreeMap::new();
        for state in STATES {
            steps.insert(state, kill_at_every_step(python, state));
        }
        assert!(steps.values().all(|steps| *steps > 1), "{steps:?}");
    });
}
