//! What a trace may cost, by its own account: counted in CPU time, so that a machine that has other things to do changes nothing.

use probing_testkit::{every_python, wait_until};

use super::Traced;

/// What a trace may cost if nobody says, and the CPU time for which it may cost so much at once: with that it begins.
const BUDGET: f64 = 0.01;
const AT_ONCE_SECONDS: f64 = 0.25;
/// Events between two looks at what they cost.
const BETWEEN_LOOKS: f64 = 2.0 * 4096.0;

/// The share of CPU time that it says to have cost so far, and nanoseconds of an event.
fn cost(traced: &Traced) -> (f64, f64) {
    let listed = traced.probing(&["trace", "--list"]);
    let number = |before: &str, after: &str| -> Option<f64> {
        let (_, rest) = listed.split_once(before)?;
        rest.split_once(after)?.0.parse().ok()
    };
    let share = number("cost so far ", " % of CPU time");
    let event = number("% of CPU time (", " ns an event)");
    let Some((percent, nanos)) = share.zip(event) else {
        panic!("{listed}");
    };
    (percent / 100.0, nanos)
}

/// Spends CPU time, and sees that the trace has cost no more of it than it may; the share that it has cost.
fn spend(traced: &mut Traced) -> f64 {
    spend_by(traced, "spend")
}

fn spend_by(traced: &mut Traced, function: &str) -> f64 {
    let mut spent = 0.0;
    let mut last = 0.0;
    for seconds in [1.0, 1.0] {
        traced.run(&format!("{function}({seconds})"));
        spent += seconds;
        let (share, event_nanos) = cost(traced);
        let overshoot = BETWEEN_LOOKS * event_nanos * 1e-9;
        let most = (BUDGET * (spent + AT_ONCE_SECONDS) + overshoot) / spent;
        // It is told in hundredths of a percent.
        assert!(
            share <= most + 0.0001,
            "{share} of {spent} s, {most} at most"
        );
        last = share;
    }
    last
}

/// Before 3.12, whoever looks for code of a module has all code tell that it begins.
#[test]
fn what_others_have_to_tell_for_a_trace_is_paid_for_too() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        let begun = traced.probing(&["trace", "--module", "asyncio.queues"]);
        let share = spend(&mut traced);
        let is_older = python.version < (3, 12);
        assert_eq!(share > 0.005, is_older, "{share}: {begun}");
        assert_eq!(
            begun.contains("for each call of other functions"),
            is_older,
            "{begun}"
        );
        // It was quiet by turns, and is there again.
        let mutings = "select count(*) > 1 from python.probe_budget where action = 'mute'";
        assert_eq!(traced.query(mutings), [is_older.to_string()]);
        wait_until("what the module does is told", || {
            traced.run("asyncio.Queue()");
            let rows = "select count(*) > 0 from python.trace_event where func = 'Queue.__init__'";
            traced.query(rows) == ["true"]
        });
    });
}

/// What ends while nothing is told is known to have ended afterwards.
#[test]
fn functions_have_no_more_depth_than_they_have_when_some_are_throttled() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "--module", "__main__"]);
        for _ in 0..2 {
            traced.run("spend(1.0)");
        }
        // What begins while it is muted does not count.
        let depths = "select func, max(depth) from python.trace_event where func in ('leaf', 'hostile', 'spend') group by 1 order by 1";
        assert_eq!(traced.query(depths), ["hostile,1", "leaf,2", "spend,0"]);
        let mutings = "select count(*) > 1 from python.probe_budget where action = 'mute'";
        assert_eq!(traced.query(mutings), ["true"]);
    });
}

#[test]
fn a_loop_that_does_nothing_but_call_costs_its_budget_from_the_first_second_on() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "leaf"]);
        assert!(spend(&mut traced) > 0.0);
        // What it saw is what it says, and it was quiet by turns.
        let counted = traced.query("select count(*) > 10000, (select count(*) > 1 from python.probe_budget where action = 'mute') from python.trace_event");
        assert_eq!(counted, ["true,true"]);
        let top = traced.probing(&["top", "--once", "--for", "10m"]);
        assert!(
            top.starts_with("by python.trace_stats: a part of the calls"),
            "{top}"
        );
    });
}

/// Also those of C, which become no rows, and while one call of a function lasts.
#[test]
fn what_a_followed_function_calls_is_paid_for_too() {
    every_python(|python| {
        let ways = [
            ("spend", "hostile"),
            ("spend", "spend"),
            ("spend_in_c", "counting"),
        ];
        for (spends, followed) in ways {
            let mut traced = Traced::start(python);
            traced.probing(&["trace", followed, "--depth", "2"]);
            let share = spend_by(&mut traced, spends);
            assert!(share > 0.005, "{share}: {followed}");
            let mutings = "select count(*) > 1 from python.probe_budget where action = 'mute'";
            assert_eq!(traced.query(mutings), ["true"], "{followed}");
            // It was quiet by turns: what came later is there, too.
            let calls = "select count(*) > 10000 from python.trace_event where func = 'leaf' and kind = 'call'";
            let is_seen = spends == "spend";
            assert_eq!(traced.query(calls), [is_seen.to_string()], "{followed}");
        }
    });
}
