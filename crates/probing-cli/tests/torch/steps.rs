//! Steps of several ranks: the same number is the same step, whenever recording reached each of them.

use std::collections::{BTreeMap, BTreeSet};

use probing_testkit::{CommandResult, Python, Target, wait_until};

use crate::collectives::Job;
use crate::sandbox;

const PROGRAM: &str = "tests/targets/with_torch/steps.py";

/// A training of two ranks, that goes on when it is told to.
pub(crate) struct Training {
    pub(crate) job: Job,
    done: usize,
}

impl Training {
    pub(crate) fn start() -> Self {
        Self {
            job: Job::of(PROGRAM, "ready", 2, &[]),
            done: 0,
        }
    }

    /// Has both ranks do more steps, and waits for them.
    pub(crate) fn go_on(&mut self, steps: usize) {
        let ran = self
            .job
            .probing(&["--ranks", "0-1", "eval", &format!("more({steps})")]);
        assert_eq!(ran.status, 0, "{ran:?}");
        self.done += steps;
        let done = format!("ranks 0-1: {}\n", self.done);
        wait_until("the steps are done", || {
            self.job.probing(&["--ranks", "0-1", "eval", "done"]).stdout == done
        });
    }

    /// Switches recording in one rank, a step before the other.
    fn switch(&mut self, first: &str, second: &str, how: &str) {
        for rank in [first, second] {
            let ran = self.job.probing(&["--ranks", rank, "torch", how]);
            assert_eq!(ran.status, 0, "{ran:?}");
            self.go_on(1);
        }
    }

    /// When each step of the program ended in a rank.
    fn times(&self, rank: i64) -> Vec<i64> {
        let rank = rank.to_string();
        let ran = self.job.probing(&["--ranks", &rank, "eval", "times"]);
        serde_json::from_str(ran.ok()).unwrap()
    }

    /// Which steps of the program rows of each step are of, by what the program itself knows; the steps of each rank; and
    /// what was said.
    fn truth(&self) -> (Real, [Vec<i64>; 2], String) {
        let sql = "SELECT rank, step, CAST(ts AS BIGINT) AS at FROM python.torch_trace WHERE stage = 'post step' ORDER BY ts";
        let asked = self.job.probing(&["query", "--json", sql]);
        let truth = [self.times(0), self.times(1)];
        let mut real = Real::new();
        let mut steps = [Vec::new(), Vec::new()];
        for row in asked.json().as_array().unwrap() {
            let number = |name: &str| row[name].as_i64().unwrap();
            let rank = number("rank") as usize;
            let times = truth[rank].iter().enumerate();
            let nearest = times.min_by_key(|(_, at)| (*at - number("at")).abs());
            real.entry(number("step"))
                .or_default()
                .insert(nearest.unwrap().0);
            steps[rank].push(number("step"));
        }
        (real, steps, warnings(&asked))
    }
}

/// Steps of the program by the numbers of rows.
type Real = BTreeMap<i64, BTreeSet<usize>>;

fn warnings(ran: &CommandResult) -> String {
    let lines = ran.stderr.lines();
    lines.filter(|line| !line.contains(" rows in ")).collect()
}

/// Whether a step is one of the program's, and later steps are later.
#[track_caller]
fn check(by_step: &Real) {
    let mut last = None;
    for (step, real) in by_step {
        assert_eq!(real.len(), 1, "step {step}: {by_step:?}");
        let real = real.first().copied();
        assert!(real > last, "{by_step:?}");
        last = real;
    }
}

#[test]
fn ranks_that_are_recorded_from_different_steps_on_share_their_numbers() {
    let mut training = Training::start();
    training.go_on(2);
    training.switch("0", "1", "on");
    training.go_on(3);
    let (by_step, steps, said) = training.truth();
    check(&by_step);
    assert_eq!(said, "");
    // Rank 0 came a step earlier.
    assert_eq!(steps[0], [0, 1, 2, 3, 4]);
    assert_eq!(steps[1], [1, 2, 3, 4]);

    for cycle in 0..6 {
        let (first, second) = if cycle % 2 == 0 {
            ("0", "1")
        } else {
            ("1", "0")
        };
        training.switch(first, second, "off");
        training.switch(second, first, "on");
        training.go_on(2);
    }
    let (by_step, _, said) = training.truth();
    check(&by_step);
    assert_eq!(said, "");

    // What is asked of steps goes by the same numbers, however it is answered.
    let last = by_step.last_key_value().unwrap().0;
    let asked = |sql: &str| training.job.rows(sql);
    let greatest = asked(
        "SELECT rank, max(step) AS last FROM python.torch_trace WHERE stage = 'post step' GROUP BY rank ORDER BY rank",
    );
    assert_eq!(greatest[0]["last"], *last);
    assert_eq!(greatest[1]["last"], *last);
    let most = asked("SELECT max(step) AS last FROM python.steps");
    assert_eq!(most[0]["last"], *last);
    let both =
        format!("SELECT DISTINCT rank FROM python.torch_trace WHERE step = {last} ORDER BY rank");
    assert_eq!(asked(&both).len(), 2);
    let sums = "SELECT sum(step) AS sum, sum(step + 0) AS same FROM python.steps";
    let sums = asked(sums);
    assert_eq!(sums[0]["sum"], sums[0]["same"]);
    let pairs = "SELECT max(abs(CAST(a.ts AS BIGINT) - CAST(b.ts AS BIGINT))) AS apart, count(*) AS pairs \
                 FROM python.steps a JOIN python.steps b USING (step) WHERE a.rank = 0 AND b.rank = 1";
    let pairs = asked(pairs);
    assert!(pairs[0]["pairs"].as_i64().unwrap() >= 16, "{pairs:?}");
    assert_eq!(training.job.torchrun.end().status, 0);
}

/// Two processes that have ranks and do nothing together.
#[test]
fn steps_that_cannot_be_aligned_are_said_not_to_be() {
    let sandbox = sandbox();
    let start = |rank: &str| {
        let target = sandbox.target(&Python::with_torch(), "with_torch/training.py");
        let target = target.env("RANK", rank).env("WORLD_SIZE", "2");
        target.env("PROBING_TORCH", "1").env("PROBING", "1").start()
    };
    let targets = [start("0"), start("1")];
    let pids = targets.each_ref().map(|target| target.pid().to_string());
    let ask = |sql: &str| -> CommandResult {
        sandbox.probing(["-t", &pids.join(","), "query", "--json", sql])
    };
    wait_until("both have trained", || {
        let steps = ask("SELECT rank FROM python.steps GROUP BY rank HAVING count(*) > 5");
        steps.json().as_array().unwrap().len() == 2
    });
    let asked = ask("SELECT rank, max(step) FROM python.torch_trace GROUP BY rank");
    assert_eq!(asked.status, 0, "{asked:?}");
    let said = "warning: rank 1: steps cannot be aligned with those of other ranks: the same number is not the same step";
    assert!(asked.stderr.contains(said), "{asked:?}");
    // Who does not ask for steps is not told.
    let asked = ask("SELECT rank, count(*) FROM python.torch_trace GROUP BY rank");
    assert_eq!(asked.status, 0, "{asked:?}");
    assert!(!warnings(&asked).contains("aligned"), "{asked:?}");
    drop(targets.map(Target::end));
}
