//! `probing connect`: what a program says and hears.

use probing_testkit::{EndedTarget, Sandbox, Target, every_python, wait_until};
use serde_json::{Value, json};

use crate::{sandbox, scrubbed};

/// The command, spoken to by a program.
struct Talk {
    command: Target,
}

impl Talk {
    fn start(sandbox: &Sandbox, arguments: &[&str]) -> Self {
        let mut command = sandbox.command();
        command.args(arguments).arg("connect");
        let command = sandbox.target_command(command).start_without_waiting();
        Self { command }
    }

    /// With the hello heard.
    fn with(sandbox: &Sandbox, target: &Target) -> Self {
        let mut talk = Self::start(sandbox, &["-t", &target.pid().to_string()]);
        let hello = talk.hear();
        assert_eq!(
            (&hello["event"], &hello["pid"]),
            (&json!("hello"), &json!(target.pid())),
            "{hello}"
        );
        talk
    }

    fn say(&mut self, line: Value) {
        self.command.say(&line.to_string());
    }

    fn hear(&mut self) -> Value {
        serde_json::from_str(&self.command.line()).unwrap()
    }

    /// What belongs to request `id`: all output, then the last line. Others' lines are passed over.
    fn answer(&mut self, id: u64) -> (String, Value) {
        let mut output = String::new();
        loop {
            let line = self.hear();
            match line["event"].as_str() {
                _ if line["id"] != id => {}
                Some("output") => output.push_str(line["text"].as_str().unwrap()),
                _ => return (output, line),
            }
        }
    }

    fn ask(&mut self, line: Value) -> (String, Value) {
        let id = line["id"].as_u64().unwrap();
        self.say(line);
        self.answer(id)
    }

    /// Starts code that never ends and returns when it runs.
    fn endless(&mut self, id: u64) {
        let code = "print('begun', flush=True)\nwhile True: pass";
        self.say(json!({"id": id, "op": "eval", "code": code}));
        loop {
            let line = self.hear();
            if line["id"] == id && line["event"] == "output" {
                return;
            }
        }
    }

    fn end(self) -> EndedTarget {
        self.command.end()
    }
}

#[test]
fn evals_answer_with_output_value_and_exception() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let mut talk = Talk::with(&sandbox, &target);
        let (output, line) =
            talk.ask(json!({"id": 1, "op": "eval", "code": "print('seen'); step"}));
        assert_eq!(output, "seen\n");
        assert_eq!(
            (&line["event"], &line["outcome"], &line["value"]),
            (&json!("evaluated"), &json!("finished"), &json!("7"))
        );
        let (_, line) = talk.ask(json!({"id": 2, "op": "eval", "code": "x = None"}));
        assert_eq!(
            (&line["outcome"], line.get("value")),
            (&json!("finished"), None)
        );
        let (output, line) =
            talk.ask(json!({"id": 1, "op": "eval", "code": "print('on'); train_step(0)"}));
        assert_eq!(
            (
                output.as_str(),
                &line["exception"],
                &line["frames"][1]["func"]
            ),
            ("on\n", &json!("ZeroDivisionError"), &json!("train_step"))
        );
        let (_, line) = talk.ask(json!({"id": 3, "op": "eval", "code": "x = ("}));
        assert_eq!(line["outcome"], "syntax_error");
        let ended = talk.end();
        assert_eq!(
            (ended.status, ended.stdout, ended.stderr),
            (0, vec![], vec![])
        );
    });
}

#[test]
fn a_time_limit_interrupts_and_code_in_c_is_told_as_stuck() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let mut talk = Talk::with(&sandbox, &target);
        let mut eval = |code: &str| {
            talk.ask(json!({"id": 1, "op": "eval", "code": code, "timeout_seconds": 0.1}))
                .1
        };
        let line = eval("while True: pass");
        assert_eq!(
            (&line["event"], &line["timed_out"], &line["exception"]),
            (
                &json!("evaluated"),
                &json!(true),
                &json!("KeyboardInterrupt")
            )
        );
        let line = eval("import time; time.sleep(600)");
        assert_eq!(
            (&line["event"], &line["begun"]),
            (&json!("stuck"), &json!(true)),
            "{line}"
        );
        assert!(
            line["reason"].as_str().unwrap().contains("C call"),
            "{line}"
        );
        assert_eq!(eval("step")["value"], "7");
    });
}

#[test]
fn many_requests_are_in_flight_and_each_can_be_cancelled() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let mut talk = Talk::with(&sandbox, &target);
        for id in 1..=3 {
            talk.endless(id);
        }
        assert_eq!(
            talk.ask(json!({"id": 9, "op": "eval", "code": "step"})).1["value"],
            "7"
        );
        let (_, line) = talk.ask(json!({"id": 2, "op": "eval", "code": "step"}));
        assert_eq!(line["error"], "a request with this id is in flight: 2");
        talk.say(json!({"id": 10, "op": "cancel", "request": 2}));
        assert_eq!(talk.answer(2).1["exception"], "KeyboardInterrupt");
        // It has ended: cancelling it again is no error.
        assert_eq!(
            talk.ask(json!({"id": 11, "op": "cancel", "request": 2})).1["event"],
            "done"
        );
        assert_eq!(talk.end().status, 0);
        wait_until("the rest was interrupted", || target.usage().threads == 2);
    });
}

#[test]
fn there_is_a_bound_on_what_is_in_flight() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let mut talk = Talk::with(&sandbox, &target);
        let code = "import threading; never = threading.Event()";
        talk.ask(json!({"id": 1, "op": "eval", "code": code}));
        for id in 1..=32 {
            talk.say(json!({"id": id, "op": "eval", "code": "never.wait(600)"}));
        }
        let (_, line) = talk.ask(json!({"id": 33, "op": "eval", "code": "step"}));
        assert_eq!(line["error"], "more than 32 requests in flight");
        // Others are served all the same.
        assert_eq!(sandbox.eval(&target, "step").ok(), "7\n");
        assert_eq!(talk.end().status, 0);
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn stacks_are_read_without_a_probe_and_the_first_eval_brings_it_in() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "waiting.py").start();
        let threads = target.usage().threads;
        let mut talk = Talk::start(&sandbox, &["-t", &target.pid().to_string()]);
        assert_eq!(talk.hear()["probed"], false);
        let (_, line) = talk.ask(json!({"id": 1, "op": "backtrace"}));
        assert!(
            line["text"]
                .as_str()
                .unwrap()
                .contains("in wait_for_the_end"),
            "{line}"
        );
        assert_eq!(
            line["report"]["threads"][0]["frames"][0]["func"],
            "wait_for_the_end"
        );
        let (_, line) = talk.ask(json!({"id": 1, "op": "backtrace", "all": true}));
        assert_eq!(line["report"]["threads"].as_array().unwrap().len(), 6);
        let (_, line) = talk.ask(json!({"id": 1, "op": "backtrace", "thread": "guard"}));
        assert_eq!(line["report"]["threads"][0]["thread_name"], "guard");
        let (_, line) = talk.ask(json!({"id": 1, "op": "backtrace", "thread": "nobody"}));
        assert_eq!(line["kind"], "failed");
        assert!(
            line["error"]
                .as_str()
                .unwrap()
                .starts_with("no thread is named nobody")
        );
        assert_eq!(target.usage().threads, threads);

        assert_eq!(
            talk.ask(json!({"id": 1, "op": "eval", "code": "len(threads)"}))
                .1["value"],
            "5"
        );
        wait_until("only the probe is in", || {
            target.usage().threads == threads + 1
        });
        assert_eq!(
            talk.ask(json!({"id": 2, "op": "detach"})).1["event"],
            "done"
        );
        wait_until("the probe is out", || target.usage().threads == threads);
        let (_, line) = talk.ask(json!({"id": 1, "op": "backtrace"}));
        assert_eq!(line["event"], "backtrace");
        // A connection that was kept from before would be dead.
        assert_eq!(
            talk.ask(json!({"id": 1, "op": "eval", "code": "len(threads)"}))
                .1["value"],
            "5"
        );
    });
}

#[test]
fn evals_at_the_same_time_attach_once() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "idle.py").start();
        let mut talk = Talk::with(&sandbox, &target);
        for id in 1..=8 {
            talk.say(json!({"id": id, "op": "eval", "code": "step"}));
        }
        let mut answered: Vec<u64> = (1..=8)
            .map(|_| {
                let line = talk.hear();
                assert_eq!(line["value"], "7", "{line}");
                line["id"].as_u64().unwrap()
            })
            .collect();
        answered.sort_unstable();
        assert_eq!(answered, (1..=8).collect::<Vec<u64>>());
    });
}

#[test]
fn attaching_can_be_forbidden() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "idle.py").start();
        let pid = target.pid().to_string();
        let mut talk = Talk::start(&sandbox, &["-t", &pid, "--no-attach"]);
        assert_eq!(talk.hear()["event"], "hello");
        let (_, line) = talk.ask(json!({"id": 1, "op": "eval", "code": "step"}));
        assert_eq!(
            (&line["kind"], &line["error"]),
            (
                &json!("unreachable"),
                &json!(format!("no probe in process: {pid}"))
            )
        );
        assert_eq!(target.usage().threads, 1);
    });
}

#[test]
fn the_end_of_the_target_is_the_last_line() {
    every_python(|python| {
        let sandbox = sandbox();
        for prepared in [true, false] {
            let target = if prepared {
                sandbox.probed(python, "idle.py")
            } else {
                sandbox.target(python, "idle.py").start()
            };
            let pid = target.pid();
            let mut talk = Talk::with(&sandbox, &target);
            if prepared {
                talk.endless(1);
            }
            drop(target);
            if prepared {
                let (_, line) = talk.answer(1);
                assert_eq!(
                    (&line["event"], &line["kind"]),
                    (&json!("failed"), &json!("unreachable"))
                );
            }
            let reason = format!("the target has ended: {pid}");
            assert_eq!(talk.hear(), json!({"event": "gone", "reason": reason}));
            let ended = talk.command.wait();
            assert_eq!(
                (ended.status, ended.stdout, ended.stderr),
                (3, vec![], vec![])
            );
        }
    });
}

#[test]
fn nothing_goes_to_stderr_however_often_there_is_something_to_note() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "waiting.py");
        let mut talk = Talk::with(&sandbox, &target);
        // Its probe cannot tell the locals, so they are those read from outside.
        target.stop();
        let (_, line) = talk.ask(json!({"id": 1, "op": "backtrace", "locals": true}));
        let text = line["text"].as_str().unwrap();
        assert!(text.contains("note: values of "), "{text}");
        assert_eq!(talk.end().stderr, [""; 0]);
    });
}

#[test]
fn a_socket_is_a_target_too() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let folder = sandbox.runtime_dir().join(&sandbox.target_dirs()[0]);
        let socket = format!("unix:{}/probe.sock", folder.display());
        let mut talk = Talk::start(&sandbox, &["-t", &socket]);
        let hello = talk.hear();
        assert_eq!(
            (&hello["pid"], &hello["probed"]),
            (&json!(target.pid()), &json!(true))
        );
        assert_eq!(
            talk.ask(json!({"id": 1, "op": "eval", "code": "step"})).1["value"],
            "7"
        );
        assert_eq!(
            talk.ask(json!({"id": 1, "op": "backtrace"})).1["event"],
            "backtrace"
        );
        drop(target);
        assert_eq!(talk.hear()["event"], "gone");
    });
}

#[test]
fn lines_that_make_no_sense_are_refused_and_the_connection_stays() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let mut talk = Talk::with(&sandbox, &target);
        talk.command.say("loss");
        let line = talk.hear();
        assert_eq!((&line["event"], line.get("id")), (&json!("failed"), None));
        let mut check = |line: Value, says: &str| {
            let (_, told) = talk.ask(line);
            assert_eq!(told["event"], "failed", "{told}");
            assert!(told["error"].as_str().unwrap().contains(says), "{told}");
        };
        check(json!({"id": 1, "op": "dance"}), "unknown variant `dance`");
        check(json!({"id": 1, "op": "eval"}), "missing field `code`");
        check(
            json!({"id": 1, "op": "eval", "code": "1", "timeout_seconds": -1.0}),
            "timeout_seconds",
        );
        check(
            json!({"id": 1, "op": "query", "sql": "SELECT x"}),
            "no such column: x",
        );
        assert_eq!(
            talk.ask(json!({"id": 1, "op": "eval", "code": "step"})).1["value"],
            "7"
        );
    });
}

#[test]
fn a_query_that_is_asked_again_sees_what_is_there_now() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let mut talk = Talk::with(&sandbox, &target);
        let mut ask = |line: Value| talk.ask(line).1;
        let record = |row: &str| json!({"id": 1, "op": "eval", "code": format!("import probing; probing.record('t', {row})")});
        let query = |sql: &str| json!({"id": 2, "op": "query", "sql": sql});
        let all = query("SELECT * FROM t WHERE x >= (SELECT max(x) FROM t)");
        let now = query("SELECT CAST(now() AS BIGINT) AS n FROM t LIMIT 1");

        ask(record("x=1"));
        let columns = ask(all.clone())["columns"].as_array().unwrap().len();
        let before = ask(now.clone())["rows"].clone();
        for x in 2..5 {
            ask(record(&format!("x={x}")));
            let rows = ask(all.clone())["rows"].clone();
            let row = rows[0].as_array().unwrap();
            assert_eq!(
                (rows.as_array().unwrap().len(), row.last()),
                (1, Some(&json!(x)))
            );
        }
        assert_ne!(ask(now)["rows"], before);
        ask(record("x=9, more='text'"));
        assert_eq!(ask(all)["columns"].as_array().unwrap().len(), columns + 1);
    });
}

#[test]
fn a_target_that_is_not_there_is_the_only_line() {
    let sandbox = sandbox();
    let mut talk = Talk::start(&sandbox, &["-t", "999999999"]);
    insta::assert_snapshot!(talk.command.line(), @r#"{"event":"failed","kind":"unreachable","error":"no such process: 999999999","hint":"`probing list` shows the processes that can be looked at"}"#);
    assert_eq!(talk.command.wait().status, 3);
    let mut talk = Talk::start(&sandbox, &["-t", "no-such-program.py"]);
    assert_eq!(
        talk.hear()["error"],
        "no Python process is named: no-such-program.py"
    );
    every_python(|python| {
        let name = format!("twins{}-{}.py", python.version.1, std::process::id());
        let program = sandbox.path().join(&name);
        std::fs::copy(
            probing_testkit::root().join("tests/targets/idle.py"),
            &program,
        )
        .unwrap();
        let start = || {
            let command = python.run([&program]);
            sandbox.target_command(command).start()
        };
        let _twins = (start(), start());
        let line = Talk::start(&sandbox, &["-t", &name]).hear();
        let error = scrubbed(line["error"].as_str().unwrap());
        assert!(
            error.starts_with("N Python processes are named twinsN"),
            "{error}"
        );
    });
}
