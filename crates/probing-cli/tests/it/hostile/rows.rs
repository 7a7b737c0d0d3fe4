//! Every command, with the ways in which it is run on a hostile program.

use probing_testkit::EVIL;

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Itself,
    /// By Ctrl-C, when it has shown something hostile. On a terminal only.
    Interrupt,
    /// It reads these lines from a pipe.
    Input(&'static str),
}

/// What a way must show besides nothing harmful: that the hostile words came through it at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    Evil,
    /// Nothing of the program's, or not always.
    Anything,
    /// What code printed: a pipe gets just that.
    Code,
}

use End::{Input, Interrupt, Itself};
use Says::{Anything, Code, Evil};

/// Arguments after the command's name; `@PID`, `@FOLDER` and `@LINE` stand for the program's.
pub(super) type Way = (End, Says, &'static [&'static str]);

/// Each command, in an order that makes sense, with the ways in which it is run. `true`: needs a target.
pub(super) const ROWS: &[(&str, bool, &[Way])] = &[
    ("attach", true, &[(Itself, Anything, &[])]),
    (
        "list",
        false,
        &[(Itself, Anything, &[]), (Itself, Anything, &["--dead"])],
    ),
    (
        "eval",
        true,
        &[
            (Itself, Code, &["odd"]),
            (Itself, Code, &["print(value)"]),
            (Itself, Code, &["import sys; print(value, file=sys.stderr)"]),
            (Itself, Evil, &["raise HostileError(EVIL)"]),
            (Itself, Evil, &["fail()"]),
            (Itself, Anything, &["odd = ="]),
            (Itself, Evil, &["odd", "--thread", "nobody"]),
        ],
    ),
    (
        "repl",
        true,
        &[(
            Input(
                "fail()\n%bt --all --locals\n%threads\n%who\n?odd\n?work\n%frame 99\n%sql SELECT text FROM hostile LIMIT 1\n",
            ),
            Evil,
            &[],
        )],
    ),
    (
        "backtrace",
        true,
        &[
            (Itself, Evil, &["--all", "--locals"]),
            (Itself, Evil, &["--all", "--native", "--reverse"]),
            (Itself, Evil, &["--tasks"]),
            (Itself, Evil, &["--thread", "nobody"]),
            (Itself, Evil, &["--all", "--dump", "2", "--every", "0.1"]),
            (Interrupt, Evil, &["--all", "--watch", "0.1"]),
        ],
    ),
    (
        "query",
        true,
        &[
            (Itself, Anything, &["SELECT * FROM python.backtrace"]),
            (Itself, Evil, &["SELECT * FROM python.backtrace", "--wide"]),
            (Itself, Evil, &["SELECT * FROM python.backtrace", "--csv"]),
            (
                Itself,
                Anything,
                &["SELECT text FROM hostile LIMIT 3", "--arrow"],
            ),
            (Itself, Anything, &["SELECT * FROM hostile LIMIT 3"]),
            (
                Itself,
                Anything,
                &["SELECT * FROM hostile LIMIT 3", "--csv"],
            ),
            (Itself, Evil, &["SELECT * FROM python.threads", "--wide"]),
            (Itself, Evil, &["SELECT * FROM process.threads", "--wide"]),
            (Itself, Evil, &["SELECT * FROM process.info", "--wide"]),
            (
                Itself,
                Evil,
                &[
                    "SELECT * FROM process.envs WHERE name LIKE 'EVIL%'",
                    "--wide",
                ],
            ),
            (Itself, Anything, &["DESCRIBE hostile", "--wide"]),
            (Itself, Anything, &["EXPLAIN SELECT * FROM hostile"]),
            (Itself, Anything, &["SELECT nothing FROM hostile"]),
            (
                Interrupt,
                Evil,
                &["SELECT * FROM python.threads", "--every", "0.1"],
            ),
        ],
    ),
    (
        "export",
        true,
        &[(Itself, Anything, &["--parquet", "@FOLDER/exported"])],
    ),
    (
        "flamegraph",
        true,
        &[
            (Itself, Evil, &["--for", "0.3", "--idle", "-o", "-"]),
            (
                Itself,
                Evil,
                &["--for", "0.3", "--idle", "-o", "-", "--format", "folded"],
            ),
            (
                Itself,
                Evil,
                &[
                    "--for",
                    "0.3",
                    "--idle",
                    "-o",
                    "-",
                    "--format",
                    "speedscope",
                ],
            ),
            (Itself, Anything, &["--for", "0.3", "-o", "@FOLDER/out.svg"]),
        ],
    ),
    (
        "break",
        true,
        &[
            (
                Itself,
                Anything,
                &["hostile.py:@LINE", "--action", "log:{value} {odd}"],
            ),
            (
                Interrupt,
                Evil,
                &[
                    "hostile.py:@LINE",
                    "--action",
                    "log:{value} {odd}",
                    "--follow",
                ],
            ),
            (
                Itself,
                Anything,
                &["hostile.py:@LINE", "--action", "count", "--if", "fail()"],
            ),
            (
                Itself,
                Anything,
                &["--raise", "ValueError", "--action", "snapshot"],
            ),
            (Itself, Anything, &["step", "--action", "count"]),
        ],
    ),
    (
        "watch",
        true,
        &[
            (Itself, Anything, &["__main__.changing"]),
            (Interrupt, Evil, &["__main__.changing", "--follow"]),
            (Itself, Anything, &["step:record"]),
        ],
    ),
    ("breakpoints", true, &[(Itself, Evil, &[])]),
    ("delete", true, &[(Itself, Anything, &["all"])]),
    (
        "trace",
        true,
        &[
            (Itself, Anything, &["step", "--depth", "2"]),
            (Itself, Anything, &["--list"]),
            (
                Itself,
                Anything,
                &["--export", "chrome", "-o", "@FOLDER/out.json"],
            ),
            (
                Itself,
                Anything,
                &[
                    "--export",
                    "speedscope",
                    "-o",
                    "@FOLDER/out.speedscope.json",
                ],
            ),
            (
                Itself,
                Anything,
                &["--export", "perfetto", "-o", "@FOLDER/out.pftrace"],
            ),
        ],
    ),
    (
        "top",
        true,
        &[(Itself, Anything, &["--once"]), (Interrupt, Evil, &[])],
    ),
    ("untrace", true, &[(Itself, Anything, &["all"])]),
    ("stops", true, &[(Itself, Anything, &[])]),
    ("dap", false, &[(Itself, Anything, &[])]),
    (
        "debug",
        true,
        &[(
            Input(
                "w\na\nfail()\nl\nll\nwhatis odd\nargs\nstops\nbreakpoints\nup\ndisplay value\np nothing\nq\n",
            ),
            Evil,
            &["hostile.py:@LINE"],
        )],
    ),
    ("resume", true, &[(Itself, Anything, &["all"])]),
    (
        "memory",
        true,
        &[
            (Itself, Anything, &["on"]),
            (Itself, Anything, &["status"]),
            (Itself, Anything, &["off"]),
        ],
    ),
    ("leak", true, &[(Itself, Anything, &["--for", "1s"])]),
    (
        "torch",
        true,
        &[(Itself, Anything, &["status"]), (Itself, Anything, &["on"])],
    ),
    (
        "collectives",
        true,
        &[(Itself, Anything, &["on"]), (Itself, Anything, &[])],
    ),
    (
        "watch-nan",
        true,
        &[
            (Itself, Anything, &["--for", "1s"]),
            (Itself, Anything, &["--recorded"]),
        ],
    ),
    (
        "capture",
        true,
        &[(
            Itself,
            Anything,
            &["-o", "@FOLDER/whole.probe", "--reason", EVIL],
        )],
    ),
    (
        "connect",
        true,
        &[(
            Input(
                "{\"id\":1,\"ask\":\"backtrace\",\"all\":true,\"locals\":true}\n{\"id\":2,\"ask\":\"eval\",\"code\":\"print(value); odd\"}\n{\"id\":3,\"ask\":\"query\",\"sql\":\"SELECT * FROM python.threads\"}\n",
            ),
            Evil,
            &[],
        )],
    ),
    (
        "run",
        false,
        &[(Itself, Anything, &["--", "@FOLDER/nothing\x1b[35;5m"])],
    ),
    (
        "agent",
        false,
        &[(Itself, Anything, &["--listen", "not an address\x1b[35;5m"])],
    ),
    ("completions", false, &[(Itself, Anything, &["bash"])]),
    (
        "clean",
        false,
        &[(Itself, Anything, &["--help"]), (Itself, Anything, &[])],
    ),
    ("detach", true, &[(Itself, Anything, &[])]),
];
