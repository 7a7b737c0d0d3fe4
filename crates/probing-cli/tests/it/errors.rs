//! Every way not to reach a target, with a message that helps at three in the morning.

use std::os::unix::net::UnixListener;
use std::process::Command;

use probing_testkit::{CommandResult, every_python};

use crate::{sandbox, scrubbed};

#[test]
fn a_process_that_is_not_there() {
    let ran = sandbox().probing(["-t", "999999999", "eval", "1"]);
    assert_eq!(ran.status, 3);
    insta::assert_snapshot!(ran.stderr, @r"
    error: no such process: 999999999
    hint: `probing list` shows the processes that can be looked at
    ");
}

#[test]
fn a_process_that_is_not_python() {
    let mut other = Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let ran = sandbox().probing(["-t", &other.id().to_string(), "eval", "1"]);
    assert_eq!(ran.status, 3);
    insta::assert_snapshot!(scrubbed(&ran.stderr), @r"
    error: not a Python process: N (cat)
    hint: `probing list` shows the processes that can be looked at
    ");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_process_without_a_probe_that_must_not_be_attached_to() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "idle.py").start();
        let ran = sandbox.probing(["-t", &target.pid().to_string(), "--no-attach", "eval", "1"]);
        assert_eq!(ran.status, 3);
        insta::assert_snapshot!(scrubbed(&ran.stderr), @r"
        error: no probe in process: N
        hint: `probing -t PID attach` brings one in; or start the program with PROBING=N or `probing run -- …`
        ");
        assert_eq!(target.usage().threads, 1);
        let ran = sandbox.probing(["-t", &target.pid().to_string(), "detach"]);
        assert_eq!((ran.status, target.usage().threads), (3, 1));
    });
}

#[test]
fn a_process_that_is_stopped() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        target.stop();
        let ran = sandbox.eval(&target, "1");
        assert_eq!(ran.status, 3);
        insta::assert_snapshot!(scrubbed(&ran.stderr), @r"
        error: process is stopped by a signal and cannot answer: N
        hint: resume it with: kill -CONT N
        ");
        assert_eq!(target.state(), 'T');
    });
}

#[test]
fn a_process_that_became_another_program() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "commands.py");
        target.say("import os; os.execv('/bin/sh', ['sh', '-c', 'echo became; read x'])");
        assert_eq!(target.line(), "became");
        let ran = sandbox.eval(&target, "1");
        assert_eq!(ran.status, 3);
        assert!(
            scrubbed(&ran.stderr)
                .starts_with("error: the probe of process N is gone, only its socket is left:"),
            "{ran:?}"
        );
    });
}

#[test]
fn a_socket_nobody_listens_at() {
    let sandbox = sandbox();
    let socket = sandbox.path().join("dead.sock");
    drop(UnixListener::bind(&socket).unwrap());
    for path in [socket, sandbox.path().join("none.sock")] {
        let ran = sandbox.probing(["-t", &format!("unix:{}", path.display()), "eval", "1"]);
        assert_eq!(ran.status, 3);
        assert!(
            ran.stderr.starts_with("error: nobody listens at socket: "),
            "{ran:?}"
        );
    }
}

#[test]
fn a_name_that_is_nobodys_or_several_processes() {
    every_python(|python| {
        let sandbox = sandbox();
        let ran = sandbox.probing(["-t", "no-such-script.py", "eval", "1"]);
        assert_eq!(
            (ran.status, ran.stderr.lines().next().unwrap()),
            (3, "error: no Python process is named: no-such-script.py")
        );

        let script = format!("twins{}.py", std::process::id());
        let path = sandbox.path().join(&script);
        std::fs::copy(probing_testkit::root().join("tests/targets/idle.py"), &path).unwrap();
        let start = || {
            sandbox
                .target_command(python.run([&path]))
                .env("PROBING", "1")
                .start()
        };
        let one = start();
        assert_eq!(
            sandbox.probing(["-t", &script, "eval", "loss"]).ok(),
            "0.25\n"
        );
        let other = start();
        let ran = sandbox.probing(["-t", &script, "eval", "loss"]);
        assert_eq!(ran.status, 3);
        for target in [&one, &other] {
            assert!(
                ran.stderr.contains(&format!("\n  {}  ", target.pid())),
                "{ran:?}"
            );
        }
        assert!(
            ran.stderr.ends_with(
                "hint: name one by pid: -t PID; or choose by rank: --ranks 0,2-5; several pids make a set: -t PID,PID\n"
            ),
            "{ran:?}"
        );
    });
}

#[test]
fn arguments_that_make_no_sense() {
    let sandbox = sandbox();
    let check = |arguments: &[&str], status: i32, says: &str| {
        let ran = sandbox.probing(arguments);
        assert_eq!(ran.status, status, "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{arguments:?}: {ran:?}");
    };
    check(&["eval", "1"], 1, "no target: name one with -t PID");
    check(
        &["-t", "127.0.0.1:9", "eval", "1"],
        3,
        "no token for the agent at 127.0.0.1:9",
    );
    check(&["--ranks", "failed", "backtrace"], 3, "no rank has failed");
    check(&["-t", "1", "eval"], 2, "Usage:");
    check(
        &["-t", "1", "eval", "x", "--timeout", "soon"],
        2,
        "not a number of seconds",
    );
    check(&["frobnicate"], 2, "Usage:");
    check(&[], 2, "Usage:");
}

#[test]
fn help_has_examples_and_versions_agree() {
    let sandbox = sandbox();
    let help = |arguments: &[&str]| sandbox.probing(arguments).ok().to_owned();
    for command in [
        "list",
        "eval",
        "backtrace",
        "attach",
        "detach",
        "run",
        "completions",
    ] {
        assert!(help(&[command, "--help"]).contains("Example"), "{command}");
    }
    assert!(help(&["--help"]).contains("Exit status: 0 done"));
    // Commands have kept their older names as aliases.
    for (alias, command) in [("disarm", "delete"), ("release", "resume")] {
        assert_eq!(help(&[alias, "--help"]), help(&[command, "--help"]));
    }
    assert_eq!(
        help(&["--version"]),
        format!("probing {}\n", env!("CARGO_PKG_VERSION"))
    );
    for shell in ["bash", "zsh", "fish"] {
        assert!(help(&["completions", shell]).contains("detach"), "{shell}");
    }
}

/// What a command is for is seen at once: the groups, one line each, and how other machines are reached last.
#[test]
fn help_groups_commands_and_options() {
    let help = sandbox().probing(["--help"]).ok().to_owned();
    let (commands, rest) = help.split_once("\nArguments:").unwrap();
    insta::assert_snapshot!(commands, @r"
    Debug Python processes that are already running

    Usage: probing [OPTIONS] [TARGET] <COMMAND>

    Look:
      list         List Python processes, their ranks and probes
      backtrace    Show the stacks of threads or asyncio tasks
      query        Query stacks, processes and recorded rows by SQL
      flamegraph   Sample stacks into a flame graph
      top          Show the hottest functions, live

    Run code:
      eval         Run code in the target's live `__main__` namespace
      repl         Open a Python prompt in the target

    Stop:
      break        Set a breakpoint that stops, logs, snapshots or counts
      watch        Set a watchpoint on a variable, attribute, tensor or memory
      breakpoints  List breakpoints and watchpoints with their hits
      delete       Delete breakpoints and watchpoints
      stops        List threads that are stopped at breakpoints
      resume       Resume stopped threads
      debug        Debug stopped threads with the commands of pdb
      dap          Serve an editor by the Debug Adapter Protocol

    Record:
      trace        Record calls, returns and lines of functions
      untrace      End traces of functions
      torch        Record modules, steps and tensors of a torch training
      watch-nan    Find the first NaN or Inf of a torch training
      collectives  Name the rank that a collective waits for
      memory       Record memory use and where it was allocated
      leak         Find the lines and types whose memory grows
      capture      Write stacks, variables and all tables to a file
      export       Write recorded rows to Parquet files
      clean        Remove rows that ended processes have recorded

    Reach:
      attach       Attach the probe (other commands do so when needed)
      detach       Remove the probe with its thread, files and sockets
      run          Start a program with the probe in it and its children
      agent        Serve the targets of this machine to other machines

    More:
      connect      Serve another program by lines of JSON
      completions  Print a completion script for a shell
      help         Print this message or the help of the given subcommand(s)
    ");
    let headings = rest.lines().filter(|line| line.ends_with("ptions:"));
    let headings: Vec<&str> = headings.collect();
    assert_eq!(headings, ["Options:", "Target options:", "Remote options:"]);
}

#[test]
fn a_process_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let sandbox = sandbox();
    let python = probing_testkit::Python::all().remove(0);
    let target = sandbox.probed(&python, "idle.py");
    let command = sandbox.path().join("probing");
    std::fs::copy(env!("CARGO_BIN_EXE_probing"), &command).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(sandbox.path(), open).unwrap();
    let mut nobody = Command::new(&command);
    std::os::unix::process::CommandExt::uid(&mut nobody, 65534);
    nobody.args(["-t", &target.pid().to_string(), "eval", "1"]);
    let ran = CommandResult::to_the_end(nobody);
    assert_eq!(ran.status, 3);
    insta::assert_snapshot!(scrubbed(&ran.stderr), @r"
    error: process belongs to another user (uid N): N
    hint: run `probing` as that user, or as root
    ");
}
