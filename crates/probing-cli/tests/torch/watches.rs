//! Tensors that are watched while a model trains.

use probing_testkit::{Python, wait_until};

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
    let in_place = "SELECT count(*) AS rows FROM python.variables WHERE point = 1 AND function LIKE '%sgd' \
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
