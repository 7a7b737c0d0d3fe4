//! Tensors that are watched while a model trains.

use probing_testkit::{Python, every_torch, wait_until};

use crate::sandbox;

#[test]
fn a_tensor_is_seen_to_change_in_place_and_by_another_one() {
    let (sandbox, python) = (sandbox(), Python::with_torch());
    let target = sandbox.probed(&python, "with_torch/training.py");
    let pid = target.pid().to_string();
    let probing = |arguments: &[&str]| sandbox.probing([&["-t", &pid], arguments].concat());
    let armed = probing(&["watch", "model.layers[0].weight", "--stats"]);
    let said = armed.ok();
    assert!(
        said.contains("note: now Parameter(shape=(8, 4), dtype=float32, device=cpu)"),
        "{said}"
    );
    probing(&["watch", "optimizer.param_groups[0]['lr']"]).ok();
    let rows = |sql: &str| {
        let ran = probing(&["query", "--csv", sql]);
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.stdout
    };
    let in_place = "SELECT count(*) AS rows FROM python.variables WHERE point = 1 AND func LIKE '%sgd' \
                    AND new LIKE 'Parameter(shape=(8, 4), % min=% max=% mean=% std=%'";
    wait_until("it has trained", || rows(in_place) != "rows\n0\n");
    // Who writes one of its numbers is code of torch's, and the processor sees it.
    let element = "model.layers[2].weight[0, 3]";
    let seen = probing(&["watch", "--storage", element, "--once", "--json"]);
    assert!(seen.stderr.contains("watching 4 bytes at 0x"), "{seen:?}");
    let frames = seen.json()["thread"]["frames"].clone();
    let innermost = frames[0]["file"].as_str().unwrap().to_owned();
    assert!(innermost.contains("libtorch_cpu"), "{frames:#}");
    let code =
        "optimizer.param_groups[0]['lr'] = 0.25; model.layers[0] = type(model.layers[0])(4, 3)";
    assert_eq!(sandbox.eval(&target, code).status, 0);
    // Whoever trains with it next fails; that is not looked at here.
    let other =
        "SELECT count(*) AS rows FROM python.variables WHERE new LIKE 'Parameter(shape=(3, 4)%'";
    wait_until("it is another one", || rows(other) == "rows\n1\n");
    let rate = "SELECT old, new FROM python.variables WHERE point = 2";
    assert_eq!(rows(rate), "old,new\n0.01,0.25\n");
}

/// Watches of tensors look at each line that any thread runs: not at those of our own code, which looks for a function.
#[test]
fn a_breakpoint_by_name_is_set_beside_watches_of_tensors_and_a_refused_one_never_begins() {
    every_torch(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "with_torch/training.py");
        let pid = target.pid().to_string();
        let probing = |arguments: &[&str]| sandbox.probing([&["-t", &pid], arguments].concat());
        probing(&["watch", "model.layers[0].weight"]).ok();
        probing(&["watch", "model.layers[2].weight"]).ok();
        probing(&["break", "train_step", "--action", "count"]).ok();
        let points = || probing(&["breakpoints", "--json"]).json()["points"].clone();
        wait_until("it is met", || points()[2]["passed"].as_u64() > Some(0));
        let lines = "SELECT count(*) AS rows FROM python.variables WHERE file LIKE '%<probing>%'";
        let rows = probing(&["query", "--csv", lines]);
        assert_eq!(rows.stdout, "rows\n0\n", "{rows:?}");
        let refused = probing(&["break", "no_such_module.train_step", "--if", "1 +"]);
        assert_ne!(refused.status, 0, "{refused:?}");
        assert_eq!(points().as_array().map(Vec::len), Some(3));
        assert_eq!(probing(&["detach"]).status, 0);
    });
}

#[test]
fn a_tensor_that_changes_in_place_shows_its_version_and_first_elements() {
    every_torch(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "with_torch/small.py");
        let pid = target.pid().to_string();
        let probing = |arguments: &[&str]| sandbox.probing([&["-t", &pid], arguments].concat());
        assert_eq!(target.line(), "waiting");
        target.say("");
        let said = probing(&["watch", "few"]).ok().to_owned();
        let few = "Tensor(shape=(2, 2), dtype=float32, device=cpu)";
        let now = format!("note: now {few} version=0 values=[1.0, 2.0, 3.0, 4.0]");
        assert!(said.contains(&now), "{said}");
        // Not in the order of its memory, and more than are shown.
        let said = probing(&["watch", "many"]).ok().to_owned();
        let values = "values=[0, 3, 6, 9, 1, 4, 7, 10, … 4 more]";
        assert!(said.contains(values), "{said}");
        for (name, shown) in [
            ("meta", "device=meta) version=0\n"),
            ("released", "device=cpu) version=0\n"),
            ("negative", "device=cpu) version=0\n"),
        ] {
            let said = probing(&["watch", name]).ok().to_owned();
            assert!(said.contains(shown), "{said}");
        }
        target.say("change");
        assert_eq!(target.line(), "changed");
        let sql = "SELECT old, new FROM python.variables WHERE name = 'few' ORDER BY ts";
        let rows = probing(&["query", "--json", sql]).json();
        let rows = rows.as_array().unwrap();
        assert_eq!(rows.len(), 2, "{rows:?}");
        let shown = |values: &str| format!("{few} {values}");
        assert_eq!(
            rows[0]["old"],
            shown("version=0 values=[1.0, 2.0, 3.0, 4.0]")
        );
        assert_eq!(
            rows[0]["new"],
            shown("version=1 values=[1.5, 2.5, 3.5, 4.5]")
        );
        assert_eq!(rows[1]["old"], rows[0]["new"]);
        assert_eq!(
            rows[1]["new"],
            shown("version=2 values=[1.5, 2.5, 3.5, nan]")
        );
        target.end();
    });
}
