//! `probing capture`, and what can be done with its files when the process is gone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use probing_testkit::{Python, Sandbox, Target, every_python, root, wait_until};
use serde_json::Value;

use crate::breakpoints::line;
use crate::recording::run;
use crate::{sandbox, scrubbed};

fn captured(sandbox: &Sandbox, target: &Target, name: &str) -> String {
    let path = sandbox.path().join(name);
    let path = path.to_str().unwrap();
    let pid = target.pid().to_string();
    let ran = sandbox.probing(["-t", &pid, "capture", "-o", path]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(
        ran.stdout.starts_with(&format!("{path}: process {pid}, ")),
        "{ran:?}"
    );
    path.to_owned()
}

fn recorded(sandbox: &Sandbox, python: &Python, rank: &str) -> Target {
    let mut target = sandbox
        .target(python, "recording.py")
        .env("RANK", rank)
        .start();
    run(&mut target, "probing.record('loss', step=1, value=0.5)");
    run(&mut target, "probing.record('loss', step=2, value=0.25)");
    target
}

#[test]
fn a_capture_shows_what_the_process_showed() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "stacks/task_deadlock.py").start();
        let pid = target.pid().to_string();
        let shown = |target: &str, arguments: &[&str]| {
            let ran = sandbox.probing([&["-t", target, "backtrace"], arguments].concat());
            scrubbed(ran.ok())
        };
        let tasks = ["--tasks"].as_slice();
        wait_until("main waits", || {
            shown(&pid, tasks).contains("Task-N (main), waits for")
        });
        let manners = [
            ["--all"].as_slice(),
            &["--all", "--locals"],
            &["--all", "--native"],
            tasks,
        ];
        let before: Vec<String> = manners.iter().map(|manner| shown(&pid, manner)).collect();
        let path = captured(&sandbox, &target, "x.probe");
        drop(target);
        let after: Vec<String> = manners.iter().map(|manner| shown(&path, manner)).collect();
        assert_eq!(before, after);
    });
}

#[test]
fn its_tables_can_be_asked_when_the_process_and_its_rows_are_gone() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = recorded(&sandbox, python, "3");
        let pid = target.pid();
        let path = captured(&sandbox, &target, "x.probe");
        drop(target);
        assert_eq!(sandbox.probing(["clean"]).status, 0);
        let ask = |sql: &str| {
            let ran = sandbox.probing(["-t", &path, "query", "--csv", sql]);
            assert_eq!(ran.status, 0, "{ran:?}");
            ran.stdout
        };
        let rows = ask("SELECT pid, rank, step, value FROM loss ORDER BY step");
        assert_eq!(
            rows,
            format!("pid,rank,step,value\n{pid},3,1,0.5\n{pid},3,2,0.25\n")
        );
        let frames = ask("SELECT func FROM python.backtrace WHERE depth = 0");
        assert_eq!(frames.lines().count(), 2, "{frames}");
        assert!(ask("SELECT command FROM process.info").contains("recording.py"));
        assert!(ask("SHOW TABLES").contains("user.loss"));
        assert!(ask("DESCRIBE loss").contains("value,number"));
        let refused = sandbox.probing(["-t", &path, "query", "SELECT * FROM lost"]);
        assert!(
            refused.stderr.contains("no such table: lost"),
            "{refused:?}"
        );
    });
}

#[test]
fn captures_of_a_job_and_living_processes_are_one_set() {
    let sandbox = sandbox();
    let python = &Python::all().remove(0);
    let (first, second) = (
        recorded(&sandbox, python, "0"),
        recorded(&sandbox, python, "1"),
    );
    let folder = sandbox.path().join("job/");
    let ran = sandbox.probing([
        "-t",
        &format!("{},{}", first.pid(), second.pid()),
        "capture",
        "-o",
        folder.to_str().unwrap(),
        "--json",
    ]);
    let files = ran.json();
    let path = |rank: usize| PathBuf::from(files[rank]["path"].as_str().unwrap());
    assert_eq!(path(0), folder.join("rank-0.probe"));
    assert_eq!(path(1), folder.join("rank-1.probe"));
    assert_eq!(files[1]["capture"]["rank"], 1);
    assert_eq!(files[1]["capture"]["reason"], "asked for");
    let both = format!("{},{}", path(0).display(), second.pid());
    let sql = "SELECT rank, count(*) AS n FROM loss GROUP BY rank ORDER BY rank";
    let rows: Value = sandbox
        .probing(["-t", &both, "query", "--json", sql])
        .json();
    assert_eq!(rows.to_string(), r#"[{"n":2,"rank":0},{"n":2,"rank":1}]"#);
    let tree = sandbox.probing(["-t", &both, "backtrace"]);
    assert!(tree.ok().contains("of 2: ranks 0-1"), "{tree:?}");
    let refused = sandbox.probing(["-t", &both, "capture", "-o", "one.probe"]);
    assert!(
        refused.stderr.contains("do not fit into one file"),
        "{refused:?}"
    );
}

#[test]
fn what_needs_a_process_says_so_and_what_is_no_capture_is_told() {
    let sandbox = sandbox();
    let python = &Python::all().remove(0);
    let target = sandbox.target(python, "idle.py").start();
    let path = captured(&sandbox, &target, "x.probe");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "values of variables are in it");
    for command in [&["eval", "1"][..], &["repl"], &["attach"], &["detach"]] {
        let ran = sandbox.probing([&["-t", &path], command].concat());
        assert_eq!(ran.status, 3, "{ran:?}");
        assert!(
            ran.stderr.contains("can be read but runs no code"),
            "{ran:?}"
        );
    }
    let absent = sandbox.probing(["-t", "absent.probe", "backtrace"]);
    assert!(
        absent.stderr.contains("cannot open absent.probe"),
        "{absent:?}"
    );
    let other = sandbox.path().join("other.probe");
    fs::write(&other, "something else").unwrap();
    let other = sandbox.probing(["-t", other.to_str().unwrap(), "backtrace"]);
    assert!(other.stderr.contains("not a capture"), "{other:?}");
    let pid = target.pid().to_string();
    let unnamed = sandbox.probing(["-t", &pid, "capture", "-o", "hang"]);
    assert!(unnamed.stderr.contains("-o hang.probe"), "{unnamed:?}");
}

#[test]
fn a_capture_of_a_stop_opens_in_the_debugger() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let pid = target.pid().to_string();
        let place = format!("steps.py:{}", line("end"));
        sandbox.probing(["-t", &pid, "break", &place]).ok();
        target.say("3");
        wait_until("it has stopped", || {
            !sandbox.probing(["-t", &pid, "stops"]).stdout.is_empty()
        });
        let path = captured(&sandbox, &target, "stop.probe");
        drop(target);
        let looked = |commands: &str| {
            let input = sandbox.path().join("commands");
            fs::write(&input, commands).unwrap();
            let mut command = sandbox.command();
            command.args(["-t", &path, "debug"]);
            let ran = command.stdin(fs::File::open(input).unwrap()).output();
            let ran = ran.unwrap();
            assert!(ran.status.success(), "{ran:?}");
            let text = |bytes| String::from_utf8(bytes).unwrap();
            (text(ran.stdout), text(ran.stderr))
        };
        let (shown, said) = looked("p found\np count\nu\nw\np word\nd\nl\n");
        let head = format!(
            "> add_up ({}/tests/targets/steps.py:{})",
            root().display(),
            line("end")
        );
        assert!(shown.starts_with(&head), "{shown}");
        assert!(
            shown.contains(&format!("{} ->     return found  # @end", line("end"))),
            "{shown}"
        );
        assert!(shown.contains("\n6\n3\n> main ("), "{shown}");
        assert!(shown.contains("\n'3'\n> add_up ("), "{shown}");
        assert!(
            said.starts_with(&format!("capture of process {pid} on ")),
            "{said}"
        );
        let (shown, _) = looked("ll\n");
        assert!(shown.contains(" def add_up("), "{shown}");
        let (_, said) = looked("n\np found + 1\nu 9\nu\nstop 7\n");
        for reason in [
            "error: not possible in a capture of process",
            "error: a capture runs no code; it has the variables of its frames: ",
            "error: this is the outermost frame",
            "error: no thread 7: `stops` lists all ",
        ] {
            assert!(said.contains(reason), "{said}");
        }
        let armed = sandbox.probing(["-t", &path, "debug", "add_up"]);
        assert_eq!(armed.status, 1, "{armed:?}");
        assert!(
            armed.stderr.contains("a capture has no breakpoints"),
            "{armed:?}"
        );
    });
}
