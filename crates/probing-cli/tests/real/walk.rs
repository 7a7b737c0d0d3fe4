//! A walk through everything that a user asks of a program, which reports all failures at its end.
//!
//! Each is tried whatever the others gave, so that one run says all that is wrong.

use std::fs;
use std::panic::{self, AssertUnwindSafe};

use probing_testkit::{CommandResult, wait_until};
use serde_json::{Value, json};

use crate::program::{Outcome, Program};

/// What is known of a program.
pub(crate) struct Known<'a> {
    /// Whether its processes are ranks: 0, 1, …
    pub(crate) ranks: bool,
    /// What is in the stack of its main thread at any time.
    pub(crate) around: Option<&'a str>,
    /// A function that it calls again and again, as people name it, …
    pub(crate) function: &'a str,
    /// … an expression of its locals and what that gives.
    pub(crate) local: (&'a str, &'a str),
    /// It trains with torch.
    pub(crate) trains: bool,
    /// What it records can be read from outside.
    pub(crate) keeps_rows: bool,
}

/// What went wrong on the way.
pub(crate) struct Walked(Vec<String>);

impl Walked {
    /// Whether all went well, and the program gave what it gives without us.
    #[track_caller]
    pub(crate) fn ends(mut self, with: &Outcome, alone: &Outcome) {
        if with != alone {
            let outcomes = format!("result with Probing: {with:#?}, without: {alone:#?}");
            self.0.push(outcomes);
        }
        assert!(self.0.is_empty(), "failed: {}", self.0.join(", "));
    }
}

/// What it printed, if all went well. Words beside that are for people: who was attached, who was detached.
#[track_caller]
fn told(ran: &CommandResult) -> &str {
    assert_eq!(ran.status, 0, "{ran:?}");
    &ran.stdout
}

/// A walk through all commands.
pub(crate) struct Walk<'a> {
    program: &'a Program,
    known: &'a Known<'a>,
    failed: Vec<String>,
}

impl<'a> Walk<'a> {
    /// Asks everything, the last thing to leave.
    pub(crate) fn through(program: &'a Program, known: &'a Known<'a>) -> Walked {
        let mut walk = Self {
            program,
            known,
            failed: Vec::new(),
        };
        walk.step("list", Self::list);
        walk.step("backtrace", Self::backtrace);
        walk.step("eval", Self::eval);
        walk.step("ranks", Self::ranks);
        walk.step("break", Self::stop);
        walk.step("trace", Self::trace);
        if known.trains {
            walk.step("torch", Self::torch);
            walk.step("collectives", Self::collectives);
        }
        walk.step("detach", Self::detach);
        Walked(walk.failed)
    }

    fn step(&mut self, name: &str, step: impl Fn(&Self)) {
        if panic::catch_unwind(AssertUnwindSafe(|| step(self))).is_err() {
            self.failed.push(name.to_owned());
        }
    }

    fn listed(&self, pid: &str) -> Value {
        let listed = self.program.sandbox.probing(["list", "--json"]).json();
        let pid: u64 = pid.parse().unwrap();
        let mut all = listed.as_array().unwrap().iter();
        let process = all.find(|process| process["pid"] == pid);
        process.unwrap_or_else(|| panic!("{pid}: {listed}")).clone()
    }

    fn list(&self) {
        for pid in &self.program.pids {
            let process = self.listed(pid);
            assert_eq!(process["probe"], "none", "{process}");
            assert_eq!(process["python"], "3.12", "{process}");
        }
    }

    /// With a probe: Lightning tells its first rank nothing by variables that can be seen from outside.
    fn ranks(&self) {
        for (rank, pid) in self.program.pids.iter().enumerate() {
            let process = self.listed(pid);
            let rank = if self.known.ranks {
                json!(rank)
            } else {
                Value::Null
            };
            assert_eq!(process["rank"], rank, "{process}");
        }
    }

    /// From outside: nothing is attached yet.
    fn backtrace(&self) {
        for pid in &self.program.pids {
            let all = self.program.ask(pid, &["backtrace", "--all"]);
            // The main thread, whatever it is called: uWSGI gives it another name.
            assert!(told(&all).contains(&format!("({pid})")), "{all:?}");
            if let Some(around) = self.known.around {
                let main = self.program.ask(pid, &["backtrace"]);
                assert!(told(&main).contains(around), "{main:?}");
            }
        }
    }

    fn eval(&self) {
        for pid in &self.program.pids {
            let asked = ["eval", "__import__('os').getpid()"];
            let ran = self.program.ask(pid, &asked);
            assert_eq!(told(&ran).trim_end(), pid);
        }
    }

    /// Set, hit, looked at, deleted.
    fn stop(&self) {
        let (pid, (expression, value)) = (&self.program.pids[0], self.known.local);
        let ask = |arguments: &[&str]| self.program.ask(pid, arguments);
        told(&ask(&["break", self.known.function]));
        let stops = || ask(&["stops", "--json"]).json()["stops"].clone();
        wait_until("it stops", || stops() != json!([]));
        let stop = stops()[0].clone();
        let thread = stop["thread_id"].to_string();
        let seen = panic::catch_unwind(AssertUnwindSafe(|| {
            assert_eq!(stop["frames"][0]["func"], self.known.function, "{stop}");
            let asked = ["eval", "--thread", &thread, "--frame", "0", expression];
            assert_eq!(told(&ask(&asked)).trim_end(), value);
        }));
        told(&ask(&["delete", "all"]));
        wait_until("nothing is stopped", || {
            let stopped = stops();
            if stopped != json!([]) {
                ask(&["resume", "all"]);
            }
            stopped == json!([])
        });
        assert_eq!(ask(&["breakpoints", "--json"]).json()["points"], json!([]));
        seen.unwrap_or_else(|why| panic::resume_unwind(why));
    }

    fn trace(&self) {
        let pid = &self.program.pids[0];
        let ask = |arguments: &[&str]| self.program.ask(pid, arguments);
        told(&ask(&["trace", self.known.function]));
        let sql = format!(
            "SELECT count(*) > 0 FROM python.trace_event WHERE kind = 'return' AND name = '{}'",
            self.known.function
        );
        wait_until("calls are recorded", || {
            let ran = ask(&["query", "--csv", &sql]);
            if self.known.keeps_rows {
                ran.stdout.ends_with("true\n")
            } else {
                ran.stderr.contains("in the process's own memory")
            }
        });
        told(&ask(&["untrace", "all"]));
        let traced = ask(&["trace", "--list", "--json"]).json();
        assert_eq!(traced["traces"], json!([]), "{traced}");
    }

    fn torch(&self) {
        told(&self.program.probing(&["torch", "on"]));
        let steps = "SELECT rank, count(DISTINCT step) > 1 FROM python.torch_trace WHERE stage = 'post step' GROUP BY rank ORDER BY rank";
        wait_until("steps of both ranks are recorded", || {
            let ran = self.program.probing(&["query", "--csv", steps]);
            ran.stdout.lines().skip(1).eq(["0,true", "1,true"])
        });
        let stages =
            "SELECT DISTINCT stage FROM python.torch_trace WHERE stage LIKE 'post%' ORDER BY stage";
        let ran = self.program.probing(&["query", "--csv", stages]);
        let lines: Vec<&str> = told(&ran).lines().skip(1).collect();
        assert_eq!(lines, ["post backward", "post forward", "post step"]);
        told(&self.program.probing(&["torch", "off"]));
    }

    fn collectives(&self) {
        told(&self.program.probing(&["collectives", "on"]));
        wait_until("operations of both ranks are recorded", || {
            let ran = self.program.probing(&["collectives", "--json"]);
            let Ok(report) = serde_json::from_str::<Value>(&ran.stdout) else {
                return false;
            };
            let groups = report["jobs"][0]["groups"].as_array();
            groups.is_some_and(|groups| groups.iter().any(|group| group["ranks"] == json!([0, 1])))
        });
        let shown = self.program.probing(&["collectives"]);
        assert!(shown.stdout.contains("RANK"), "{shown:?}");
        told(&self.program.probing(&["collectives", "off"]));
    }

    /// No thread and no socket of ours stays.
    fn detach(&self) {
        for pid in &self.program.pids {
            told(&self.program.ask(pid, &["detach"]));
            assert_eq!(self.listed(pid)["probe"], "none");
            for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
                let comm = task.unwrap().path().join("comm");
                let name = fs::read_to_string(comm).unwrap_or_default();
                assert!(!name.starts_with("probing"), "{name}");
            }
        }
    }
}
