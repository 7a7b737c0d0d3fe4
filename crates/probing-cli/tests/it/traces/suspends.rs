//! Functions that are left and gone on with: how they end, how long they ran, and what their variables became.

use probing_testkit::every_python;

use super::Traced;

#[test]
fn generators_and_coroutines_that_fail_are_told_with_their_times_and_variables() {
    every_python(|python| {
        for function in ["failing_generator", "failing_coroutine", "failing_stream"] {
            let mut traced = Traced::start(python);
            traced.probing(&["trace", function, "--watch", "total"]);
            traced.run(&format!("assert refused({function}(1)) == 2"));
            let rows = traced
                .query("select kind, depth, duration_ns > 0 from python.trace_event order by ts");
            let expected = ["call,0,", "yield,0,true", "resume,0,", "exception,0,true"];
            assert_eq!(rows, expected, "{function}");
            let changes =
                traced.query("select distinct name, new from python.variables order by new");
            assert_eq!(changes, ["total,1", "total,2"], "{function}");
            let sums = {
                traced.probing(&["trace", "--list"]);
                traced.query(
                    "select sum(calls), sum(errors), sum(total_ns) > 0 from python.trace_stats",
                )
            };
            // Each time that it runs is one.
            assert_eq!(sums, ["2,1,true"], "{function}");
        }
    });
}
