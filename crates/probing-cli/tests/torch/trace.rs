//! What a training does, recorded: modules, backward passes, steps, and the first value that is not finite.

use probing_proto::message::torch::{TorchCall, TorchOptions};
use probing_proto::message::{Call, Event, Request, RequestId};
use probing_testkit::{CommandResult, Python, RawClient, Sandbox, Target, every_torch, root};
use rustix::process::Signal;

use crate::sandbox;

/// A program that has models, and what is asked of it.
struct Traced {
    sandbox: Sandbox,
    target: Target,
    pid: String,
}

impl Traced {
    fn start(python: &Python) -> Self {
        let sandbox = sandbox();
        let target = sandbox.target(python, "with_torch/traced.py").start();
        let pid = target.pid().to_string();
        Self {
            sandbox,
            target,
            pid,
        }
    }

    fn run(&mut self, line: &str) {
        self.target.say(line);
        assert_eq!(self.target.line(), "done", "{line}");
    }

    fn printed(&mut self, expression: &str) -> String {
        self.target.say(&format!("print({expression}, flush=True)"));
        let line = self.target.line();
        assert_eq!(self.target.line(), "done", "{expression}");
        line
    }

    fn probing(&self, arguments: &[&str]) -> CommandResult {
        self.sandbox
            .probing([&["-t", &self.pid], arguments].concat())
    }

    /// Has every value looked at, as `PROBING_TORCH=nan` does from the start.
    fn look_for_nan(&self) {
        let options = TorchOptions {
            nan: true,
            ..TorchOptions::default()
        };
        let mut client = RawClient::of(&self.sandbox, &self.target);
        let id = RequestId(1);
        let call = Call::Torch(TorchCall::On(options));
        client.send(&Request { id, call });
        let answer = client.receive().unwrap();
        assert!(matches!(answer.event, Event::Torch(_)), "{answer:?}");
    }

    fn rows(&self, sql: &str) -> Vec<String> {
        let ran = self.probing(&["query", "--csv", sql]);
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.stdout.lines().skip(1).map(str::to_owned).collect()
    }
}

/// Of one step with one pass.
const FORWARD: &str = "\
pre Model, pre layers.0, pre layers.0.norm, post layers.0.norm, \
pre layers.0.mlp, pre layers.0.mlp.0, post layers.0.mlp.0, pre layers.0.mlp.1, post layers.0.mlp.1, \
pre layers.0.mlp.2, post layers.0.mlp.2, post layers.0.mlp, post layers.0, \
pre layers.1, pre layers.1.norm, post layers.1.norm, \
pre layers.1.mlp, pre layers.1.mlp.0, post layers.1.mlp.0, pre layers.1.mlp.1, post layers.1.mlp.1, \
pre layers.1.mlp.2, post layers.1.mlp.2, post layers.1.mlp, post layers.1, \
pre Identity, post Identity, pre head, post head, post Model";

const BACKWARD: &str = "\
pre Model, pre head, post head, pre layers.1.mlp.2, post layers.1.mlp.2, pre layers.1.mlp.0, post layers.1.mlp.0, \
pre layers.1.norm, post layers.1.norm, pre layers.0.mlp.2, post layers.0.mlp.2, \
pre layers.0.mlp.0, post layers.0.mlp.0, pre layers.0.norm, post layers.0.norm, post Model";

/// As the contract with users has it.
const SLOWEST: &str = "SELECT module, stage, avg(duration) AS avg_time FROM python.torch_trace \
                       WHERE step > (SELECT max(step) - 5 FROM python.torch_trace) \
                       GROUP BY module, stage ORDER BY avg_time DESC LIMIT 10";

#[test]
fn a_training_is_recorded_and_its_first_nan_found() {
    every_torch(|python| {
        let mut traced = Traced::start(python);
        traced.run("steps(2)");
        let on = traced.probing(&["torch", "on"]);
        assert!(on.stdout.starts_with("on, by "), "{on:?}");
        rows_of_steps(&mut traced);
        settings_and_counting(&mut traced);
        what_is_not_finite(&mut traced);
        parameters_that_come_and_go(&mut traced);
        the_dead_tell_it_too(traced);
    });
}

fn rows_of_steps(traced: &mut Traced) {
    traced.run("steps(2, passes=2)");
    traced.run("fail()");
    traced.run("steps(1)");
    let told = |traced: &Traced, step: u32, stage: &str| {
        let sql = format!(
            "SELECT replace(stage, ' {stage}', '') || ' ' || module FROM python.torch_trace \
             WHERE step = {step} AND stage LIKE '%{stage}' ORDER BY seq"
        );
        traced.rows(&sql).join(", ")
    };
    // A step has as many passes as it takes.
    for step in [0, 1] {
        assert_eq!(
            told(traced, step, "forward"),
            format!("{FORWARD}, {FORWARD}")
        );
        assert_eq!(
            told(traced, step, "backward"),
            format!("{BACKWARD}, {BACKWARD}")
        );
        assert_eq!(told(traced, step, "step"), "pre SGD, post SGD");
    }
    // A call that raised has no end; those after it are told as ever.
    let (whole, _) = FORWARD.split_once(", pre head").unwrap();
    assert_eq!(told(traced, 2, "forward"), format!("{whole}, {FORWARD}"));
    assert_eq!(told(traced, 2, "backward"), BACKWARD);
    let classes = "SELECT DISTINCT module, class, root FROM python.torch_trace WHERE module LIKE '%mlp.1' ORDER BY module";
    assert_eq!(
        traced.rows(classes),
        ["layers.0.mlp.1,GELU,Model", "layers.1.mlp.1,GELU,Model"]
    );
    let lasting =
        "SELECT count(*) FROM python.torch_trace WHERE (stage LIKE 'post%') != (duration > 0)";
    assert_eq!(traced.rows(lasting), ["0"]);
    let numbered = "SELECT count(*) FROM (SELECT step, max(seq) + 1 - count(*) AS gap FROM python.torch_trace GROUP BY step) WHERE gap != 0";
    assert_eq!(traced.rows(numbered), ["0"]);
    let slowest = traced.rows(SLOWEST);
    assert_eq!(slowest.len(), 10, "{slowest:?}");
    assert!(
        slowest.iter().all(|row| row.contains(",post ")),
        "{slowest:?}"
    );
}

fn settings_and_counting(traced: &mut Traced) {
    // Two optimizers: the one that was seen first counts.
    traced.run("both(3)");
    let status = traced.probing(&["torch", "status", "--json"]).json();
    let told = &status["torch"];
    assert_eq!(told["step"], 6, "{status}");
    assert_eq!(told["counted_by"], "SGD", "{status}");
    assert_eq!(told["roots"][0], "Model", "{status}");
    let of_encoder = "SELECT DISTINCT module FROM python.torch_trace WHERE root = 'TransformerEncoder' AND class = 'LayerNorm' ORDER BY module";
    assert_eq!(
        traced.rows(of_encoder),
        [
            "layers.0.norm1",
            "layers.0.norm2",
            "layers.1.norm1",
            "layers.1.norm2"
        ]
    );
    let tensors = ["--rate", "0.5", "--tensors", "2", "--only", "head.*"];
    traced
        .probing(&[&["torch", "on"][..], &tensors].concat())
        .ok();
    traced.run("steps(4)");
    let steps = "SELECT DISTINCT step FROM python.torch_trace WHERE step > 5 ORDER BY step";
    assert_eq!(traced.rows(steps), ["6", "8"]);
    let tensors =
        "SELECT step, kind, name, shape, dtype FROM python.tensors ORDER BY step, name, kind";
    let of_step = |step: u32| {
        [
            format!("{step},gradient,head.bias,\"(1,)\",float32"),
            format!("{step},parameter,head.bias,\"(1,)\",float32"),
            format!("{step},gradient,head.weight,\"(1, 8)\",float32"),
            format!("{step},parameter,head.weight,\"(1, 8)\",float32"),
        ]
    };
    assert_eq!(traced.rows(tensors), [of_step(6), of_step(8)].concat());
    let sound = "SELECT count(*) FROM python.tensors WHERE nan = 0 AND inf = 0 AND min <= mean AND mean <= max AND norm > 0";
    assert_eq!(traced.rows(sound), ["8"]);
}

/// Each module that gets gradients is timed once in each pass, whenever it got its parameters, and by whichever has gradients.
fn parameters_that_come_and_go(traced: &mut Traced) {
    traced.probing(&["torch", "on", "--rate", "1"]).ok();
    traced.run("steps(1)");
    let begun = traced
        .rows("SELECT max(step) FROM python.torch_trace")
        .concat();
    traced.run("anew(6)");
    traced.run("thawed()");
    let passes = format!(
        "SELECT string_agg(module, ' ') FROM (SELECT step, module FROM python.torch_trace \
         WHERE step > {begun} AND stage = 'post backward' ORDER BY step, seq) GROUP BY step ORDER BY step"
    );
    let mut expected = ["1 0 Sequential"; 13];
    // It gets no gradients at all; it is timed by one that gets none any more, until that is seen.
    (expected[6], expected[10]) = ("1 Sequential", "1 Sequential");
    assert_eq!(traced.rows(&passes), expected);
    // Nobody else hears that they are looked at.
    assert_eq!(traced.printed("heard()"), "[]");
}

fn what_is_not_finite(traced: &mut Traced) {
    let nothing = traced.probing(&["watch-nan", "--for", "1ms"]);
    assert_eq!((nothing.status, nothing.stdout.as_str()), (0, ""));
    // It has switched off what it switched on: what comes now is looked at because a client asks for that.
    traced.look_for_nan();
    traced.run("steps(1)");
    traced.run("model.poisoned = 0");
    traced.run("steps(1)");
    let found = traced.probing(&["watch-nan", "--json"]).json();
    let first = &found["found"][0];
    // The block gave finite numbers; what came of them was the next one's input.
    assert_eq!(first["tensor"]["kind"], "output", "{found}");
    assert_eq!(first["tensor"]["name"], "layers.1.norm", "{found}");
    assert_eq!(first["step"], 11, "{found}");
    let context: Vec<_> = first["context"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            (
                it["kind"].as_str().unwrap(),
                it["name"].as_str().unwrap(),
                it["inf"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        context,
        [
            ("input", "layers.1.norm", 32),
            ("parameter", "layers.1.norm.weight", 0),
            ("parameter", "layers.1.norm.bias", 0),
        ]
    );
    // Of a parameter, what the optimizer had for it.
    let stepped = "SELECT kind, nan FROM python.tensors WHERE role = 'context' AND finding = \
                   (SELECT finding FROM python.tensors WHERE role = 'found' AND kind = 'parameter' AND name = 'head.bias')";
    assert_eq!(traced.rows(stepped), ["gradient,1"]);
    let kinds = "SELECT DISTINCT kind FROM python.tensors WHERE role = 'found' ORDER BY kind";
    assert_eq!(traced.rows(kinds), ["gradient", "output", "parameter"]);
    let text = traced.probing(&["watch-nan"]);
    let line = text.ok().lines().next().unwrap().to_owned();
    let pid = &traced.pid;
    assert_eq!(
        line,
        format!("step 11: output of layers.1.norm has 32 NaN, 0 Inf of 32 (pid {pid})")
    );
}

/// Steps are not known any more: rows have none, and a trace for some steps is one for as many calls.
fn nobody_counts(traced: &mut Traced) {
    traced.probing(&["trace", "fail", "--steps", "2"]).ok();
    traced.run("[fail() for _ in range(4)]");
    let calls = "SELECT kind, step FROM python.trace_event WHERE func = 'fail' ORDER BY ts";
    assert_eq!(traced.rows(calls), ["call,", "return,", "call,", "return,"]);
    traced.probing(&["untrace", "all"]).ok();
}

fn the_dead_tell_it_too(mut traced: Traced) {
    assert_ne!(traced.printed("hooks()"), "0");
    let off = traced.probing(&["torch", "off"]);
    assert!(off.ok().starts_with("off (torch "), "{off:?}");
    assert_eq!(traced.printed("hooks()"), "0");
    let count = "SELECT count(*) FROM python.torch_trace";
    let before = traced.rows(count);
    traced.run("steps(2)");
    assert_eq!(traced.rows(count), before);
    nobody_counts(&mut traced);
    traced.probing(&["torch", "on"]).ok();
    traced.run("steps(1)");
    let before = traced.rows(count);
    // In the middle of it.
    traced.target.say("steps(10 ** 9)");
    probing_testkit::wait_until("it trains", || traced.rows(count) != before);
    traced.target.signal(Signal::KILL);
    let Traced {
        sandbox,
        target,
        pid,
    } = traced;
    target.wait();
    let rows = sandbox.probing(["-t", &pid, "query", "--csv", SLOWEST]);
    assert_eq!(rows.stdout.lines().count(), 11, "{rows:?}");
    let found = sandbox.probing(["-t", &pid, "watch-nan"]);
    assert!(
        found
            .ok()
            .starts_with("step 11: output of layers.1.norm has 32 NaN"),
        "{found:?}"
    );
}

#[test]
fn results_are_the_same_and_statistics_are_torchs_own() {
    every_torch(|python| {
        let program = root().join("tests/targets/with_torch/checked.py");
        let sandbox = sandbox();
        let mut command = python.run([program]);
        command.env("PROBING_DIR", sandbox.runtime_dir());
        let ran = CommandResult::to_the_end(command);
        insta::assert_snapshot!(ran.ok(), @r"
        results True 6 AdamW 0
        statistics 260 0 3
        graphs 1 0 10
        ");
    });
}

/// Complex numbers and those of eight bits, by operations of torch; what has no numbers is left out.
#[test]
fn numbers_that_only_torch_knows_are_told_by_torch() {
    every_torch(|python| {
        let mut traced = Traced::start(python);
        for (name, value) in [
            (
                "phase",
                "torch.tensor([3 + 4j, complex('nan'), 0j, 1 + 0j])",
            ),
            (
                "eighth",
                "torch.tensor([1.0, -2.0, 0.0, float('nan')]).to(torch.float8_e4m3fn)",
            ),
            ("huge", "torch.tensor([complex('inf')])"),
            ("nowhere", "torch.ones(2, device='meta')"),
        ] {
            traced.run(&format!(
                "model.{name} = nn.Parameter({value}, requires_grad=False)"
            ));
        }
        let of = ["--tensors", "1", "--of", "parameters"];
        let only = ["phase", "eighth", "huge", "nowhere"].map(|name| ["--only", name]);
        let on = traced.probing(&[&["torch", "on"][..], &of, &only.concat()].concat());
        assert_eq!(on.status, 0, "{on:?}");
        traced.run("steps(1)");
        let sql = "SELECT name, dtype, shape, device, count, nan, inf, zero_share, min, max, mean, round(std * std, 9), round(norm * norm, 9) \
                   FROM python.tensors ORDER BY name";
        assert_eq!(
            traced.rows(sql),
            [
                "eighth,float8_e4m3fn,\"(4,)\",cpu,4,1,0,0.25,-2.0,1.0,-0.3333333333333333,2.333333333,5.0",
                "huge,complex64,\"(1,)\",cpu,1,0,1,0.0,,,,,",
                "phase,complex64,\"(4,)\",cpu,4,1,0,0.25,0.0,5.0,2.0,7.0,26.0",
            ]
        );
        let ended = traced.target.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    });
}

#[test]
fn each_change_in_place_of_a_hooked_tensor_is_a_row() {
    every_torch(|python| {
        let mut traced = Traced::start(python);
        let line = |mark: &str| {
            let source = include_str!("../../../../tests/targets/with_torch/traced.py");
            let marked = source.lines().position(|line| line.ends_with(mark));
            marked.unwrap() + 1
        };
        traced.run("import probing; tensor = torch.zeros(4)");
        traced.run("hook = probing.hook_tensor(tensor, name='weights')");
        traced.run("change(tensor)");
        traced.run("hook.remove(); change(tensor)");
        let rows = "SELECT regexp_replace(old, '.*values=', ''), regexp_replace(new, '.*values=', ''), operation, func, lineno \
                    FROM python.variables WHERE name = 'weights' ORDER BY ts";
        let expected = |two: &str| {
            [
                (
                    "[0.0, 0.0, 0.0, 0.0]",
                    "[1.0, 1.0, 1.0, 1.0]",
                    "add_",
                    line("# @add"),
                ),
                (
                    "[1.0, 1.0, 1.0, 1.0]",
                    "[1.0, 5.0, 1.0, 1.0]",
                    "__setitem__",
                    line("# @item"),
                ),
                (
                    "[1.0, 5.0, 1.0, 1.0]",
                    "[3.0, 7.0, 3.0, 3.0]",
                    "__iadd__",
                    line("# @plus"),
                ),
                (
                    "[3.0, 7.0, 3.0, 3.0]",
                    "[5.0, 13.0, 5.0, 5.0]",
                    two,
                    line("# @two"),
                ),
            ]
            .map(|(old, new, operation, line)| {
                let quoted = if operation.contains(',') { "\"" } else { "" };
                format!("\"{old}\",\"{new}\",{quoted}{operation}{quoted},change,{line}")
            })
        };
        assert_eq!(traced.rows(rows), expected("mul_, sub_"));
        // What the optimizer does is seen, too.
        traced.run("hook = probing.hook_tensor(model.head.weight, name='head'); probing.step(41)");
        traced.run("steps(2)");
        let head = "SELECT step, func LIKE '%sgd', operation LIKE '%add_' FROM python.variables WHERE name = 'head'";
        assert_eq!(traced.rows(head), ["41,true,true"; 2]);
        traced.run("hook.remove()");
        exact_by_subclass(&mut traced, rows);
        let ended = traced.target.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    });
}

/// By the option, each operation is a row of its own.
fn exact_by_subclass(traced: &mut Traced, rows: &str) {
    let rows = rows.replace("weights", "exact");
    traced.run(
        "tensor.zero_(); hook = probing.hook_tensor(tensor, name='exact', by='torch_function')",
    );
    traced.run("change(hook.tensor); assert tensor.tolist() == [5, 13, 5, 5]");
    traced.run("assert type(hook.tensor + 1) is torch.Tensor");
    let operations: Vec<String> = traced
        .rows(&rows)
        .iter()
        .map(|row| row.rsplit(',').nth(2).unwrap().to_owned())
        .collect();
    assert_eq!(operations, ["add_", "__setitem__", "add_", "mul_", "sub_"]);
    traced.run("hook.remove(); change(hook.tensor)");
    assert_eq!(traced.rows(&rows).len(), 5);
}
