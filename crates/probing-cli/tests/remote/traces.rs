//! Traces of programs of another machine.

use probing_testkit::every_python;

use crate::agent::Agent;
use crate::sandbox;

#[test]
fn a_function_is_traced_shown_and_no_longer_traced_through_an_agent() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "traced.py");
        let agent = Agent::start(&sandbox);
        let ask = |arguments: &[&str]| {
            let ran = agent.probing(&sandbox, arguments);
            assert_eq!(ran.status, 0, "{ran:?}");
            ran.stdout
        };
        let begun = ask(&["trace", "middle", "--depth", "1"]);
        assert!(begun.contains("trace 1: "), "{begun}");
        target.say("middle(1)");
        assert_eq!(target.line(), "done");
        let rows = ask(&[
            "query",
            "--csv",
            "select kind, function, depth from python.trace_event order by ts",
        ]);
        assert_eq!(
            rows.lines().skip(1).collect::<Vec<_>>(),
            [
                "call,middle,0",
                "call,leaf,1",
                "return,leaf,1",
                "return,middle,0"
            ]
        );
        let listed = ask(&["trace", "--list"]);
        assert!(listed.contains("4 events; cost so far"), "{listed}");
        let top = ask(&["top", "--once"]);
        assert!(
            top.starts_with("by python.trace_stats") && top.contains("leaf ("),
            "{top}"
        );
        let ended = ask(&["untrace", "all"]);
        assert!(ended.contains("trace 1 ended: middle; 4 events"), "{ended}");
    });
}
