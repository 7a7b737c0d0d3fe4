//! What programs record, on every Python: what goes in comes out, while they live and after.

use std::fs;
use std::path::PathBuf;

use probing_store::{ColumnData, Kind, Store, Table};
use probing_testkit::{Sandbox, Target, every_python};
use serde_json::Value;

use crate::sandbox;

/// The folder of a process's rings.
pub(crate) fn rings(sandbox: &Sandbox, pid: u32) -> PathBuf {
    let mut dirs = sandbox.target_dirs();
    dirs.retain(|name| name.starts_with(&format!("{pid}.")));
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    let met_at = sandbox.runtime_dir().join(&dirs[0]).join("rings");
    fs::canonicalize(met_at).unwrap()
}

/// A table as text: the names and kinds of its columns, then its rows, without their time.
pub(crate) fn told(sandbox: &Sandbox, pid: u32, table: &str) -> Vec<String> {
    let store = Store::open(&rings(sandbox, pid)).unwrap();
    assert!(store.unreadable().is_empty(), "{:?}", store.unreadable());
    let names: Vec<&str> = store.tables().iter().map(Table::name).collect();
    let table = store.table(table).unwrap_or_else(|| panic!("{names:?}"));
    let snapshot = table.snapshot().unwrap();
    let columns: Vec<usize> = (1..snapshot.columns().len()).collect();
    let head: Vec<String> = snapshot.columns()[1..]
        .iter()
        .map(|column| format!("{} {}", column.name, column.kind))
        .collect();
    let mut lines = vec![head.join(", ")];
    for chunk in snapshot.chunks() {
        let data = snapshot.read(chunk, &columns).unwrap().unwrap();
        for row in 0..chunk.rows() {
            let cells: Vec<String> = data.iter().map(|data| cell(data, row)).collect();
            lines.push(cells.join(", "));
        }
    }
    lines
}

fn cell(data: &ColumnData, row: usize) -> String {
    if !data.is_valid(row) {
        return "-".to_owned();
    }
    let bytes = data.values.as_slice();
    match data.kind {
        Kind::Bool => (bytes[row / 8] >> (row % 8) & 1 == 1).to_string(),
        Kind::F64 => f64::from_le_bytes(bytes.as_chunks().0[row]).to_string(),
        Kind::I64 => i64::from_le_bytes(bytes.as_chunks().0[row]).to_string(),
        Kind::U32 => u32::from_le_bytes(bytes.as_chunks().0[row]).to_string(),
        _ => format!("{:?}", data.text(row).unwrap()),
    }
}

fn started(sandbox: &Sandbox, python: &probing_testkit::Python) -> Target {
    sandbox.target(python, "recording.py").start()
}

/// Has the target run a line, which must say "done".
pub(crate) fn run(target: &mut Target, line: &str) {
    assert_eq!(outcome(target, line), "done", "{line}");
}

pub(crate) fn outcome(target: &mut Target, line: &str) -> String {
    target.say(&line.replace('\n', "\\n"));
    target.line()
}

#[test]
fn recorded_rows_come_out_as_they_went_in() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python);
        let mut record =
            |values: &str| run(&mut target, &format!("probing.record('train', {values})"));
        record("step=1, loss=0.5, name='fwd', ok=True, note=None");
        record("step=2, loss=1, name='a name of more than twelve bytes', ok=False");
        record("step=-2**63, loss=float('nan'), name='', ok=None");
        record("step=None, loss=float('-inf'), name='ä' * 3, ok=True, note='new'");
        record("loss=2**53 + 1");
        assert_eq!(
            told(&sandbox, target.pid(), "user.train"),
            [
                "step i64, loss f64, name text, ok bool, note text",
                "1, 0.5, \"fwd\", true, -",
                "2, 1, \"a name of more than twelve bytes\", false, -",
                "-9223372036854775808, NaN, \"\", -, -",
                "-, -inf, \"äää\", true, \"new\"",
                "-, 9007199254740992, -, -, -",
            ]
        );
        assert_eq!(target.end().stderr, Vec::<String>::new());
    });
}

#[test]
fn a_column_whose_first_value_is_none_comes_with_its_first_number() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python);
        run(
            &mut target,
            "exec('for n in (None, None, 0.5, None, 2): probing.record(\"t\", loss=n, always=None)')",
        );
        assert_eq!(
            told(&sandbox, target.pid(), "user.t"),
            ["loss f64", "-", "-", "0.5", "-", "2"]
        );
    });
}

#[test]
fn a_column_that_changes_its_kind_becomes_one_that_holds_all() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python);
        let mut record = |values: &str| run(&mut target, &format!("probing.record('t', {values})"));
        // In the words of the issue: type changes, huge ints, None, long strings, new keys.
        record("a=True, b=1, c=1, d=None");
        record("a=2, b=0.25, c=2**70, d=1");
        record("a=False, b='text', c=10**400, d='x' * 100_000");
        record("a=3, b=None, c=-10**400, B=4, e=1");
        record("a=1, b=1.5, c=2, d=True");
        let lines = told(&sandbox, target.pid(), "user.t");
        let cut = lines[3].split("xx").next().unwrap();
        assert_eq!(lines[0], "a i64, b text, c f64, d text, e i64");
        assert_eq!(lines[1], "1, \"1\", 1, -, -");
        assert_eq!(lines[2], "2, \"0.25\", 1180591620717411300000, \"1\", -");
        assert_eq!(cut, "0, \"text\", inf, \"");
        assert!(
            lines[3].ends_with("x…\", -") && lines[3].len() < 20_000,
            "{}",
            lines[3].len()
        );
        assert_eq!(lines[4], "3, \"4\", -inf, -, 1");
        assert_eq!(lines[5], "1, \"1.5\", 2, \"True\", -");
    });
}

#[test]
fn what_is_no_plain_value_is_the_number_it_can_be_or_its_text() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python);
        run(
            &mut target,
            "import enum, fractions, decimal, datetime
class Index:
    def __index__(self): return 7
class Tensor:
    def __index__(self): raise TypeError('only integer tensors')
    def __float__(self): return 0.5
class Bad:
    def __str__(self): raise ValueError('no')
class Worse:
    def __index__(self): return 'seven'
    def __str__(self): return 'worse'
class Level(enum.IntEnum):
    HIGH = 3
class Name(str): pass",
        );
        run(
            &mut target,
            "probing.record('odd', a=Index(), b=Tensor(), c=Bad(), d=Worse(), e=Level.HIGH, f=Name('n'))",
        );
        run(
            &mut target,
            "probing.record('odd', a=fractions.Fraction(1, 2), c=datetime.date(2026, 1, 2), d=[1], e=b'x', f='\\ud800')",
        );
        assert_eq!(
            told(&sandbox, target.pid(), "user.odd"),
            [
                "a f64, b f64, c text, d text, e text, f text",
                "7, 0.5, \"<Bad without a text>\", \"worse\", \"3\", \"n\"",
                "0.5, -, \"2026-01-02\", \"[1]\", \"b'x'\", \"\\\\ud800\"",
            ]
        );
        // What ends a program is not swallowed, and nothing of the row is there.
        run(
            &mut target,
            "class Exits:\n    def __str__(self): raise KeyboardInterrupt",
        );
        run(
            &mut target,
            "try: probing.record('odd', c=Exits())\nexcept KeyboardInterrupt: pass\nelse: raise AssertionError",
        );
        assert_eq!(told(&sandbox, target.pid(), "user.odd").len(), 3);
    });
}

#[test]
fn wrong_calls_are_refused_and_record_nothing() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python);
        let mut refused = |line: &str, words: &str| assert_eq!(outcome(&mut target, line), words);
        refused(
            "probing.record()",
            "TypeError: takes one positional argument, a name, and values by keyword (0 were given)",
        );
        refused(
            "probing.record('t', {'a': 1})",
            "TypeError: takes one positional argument, a name, and values by keyword (2 were given)",
        );
        refused(
            "probing.record(3, a=1)",
            "TypeError: the name is a str, not int",
        );
        refused(
            "probing.record('', a=1)",
            "ValueError: not a name for a table or a column: \"\"",
        );
        refused(
            "probing.record('a/b', a=1)",
            "ValueError: not a name for a table or a column: \"a/b\"",
        );
        refused(
            "probing.record('python.threads', a=1)",
            "ValueError: tables of this schema are Probing's own: python.threads",
        );
        refused(
            "probing.record('t', ts=1)",
            "ValueError: two columns have the same name: ts",
        );
        refused(
            "probing.event()",
            "TypeError: takes one positional argument, a name, and values by keyword (0 were given)",
        );
        refused(
            "exec('for i in range(256): probing.record(f\"t{i}\", a=i)')",
            "done",
        );
        refused(
            "probing.record('one_more', a=1)",
            "ValueError: this process has too many recorded tables, 256, for one more: user.one_more",
        );
        refused("probing.record('t255', a=1)", "done");
    });
}

#[test]
fn what_a_table_has_no_room_for_is_left_out_of_the_row() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python);
        let wide = "probing.record('wide', **{f'c{i}': i for i in range(300)})";
        run(&mut target, wide);
        let new = "exec('for i in range(100): probing.record(\"new\", **{f\"k{i}\": i})')";
        run(&mut target, new);
        let lines = told(&sandbox, target.pid(), "user.wide");
        assert_eq!(lines[0].split(", ").count(), 255);
        assert_eq!(lines[1].split(", ").count(), 255);
        let lines = told(&sandbox, target.pid(), "user.new");
        assert_eq!(lines.len(), 1 + 100);
        assert_eq!(lines[0].split(", ").count(), 65);
        assert!(lines[65].ends_with(", 64") && lines[66].ends_with(", -"));
        for (table, column) in [("user.wide", "c255"), ("user.new", "k65")] {
            let sql = format!("SELECT count(*) FROM {table}");
            let asked = sandbox.probing(["-t", &target.pid().to_string(), "query", &sql]);
            let warning =
                format!("values of column {column} and others were not recorded: {table} has");
            assert!(asked.stderr.contains(&warning), "{}", asked.stderr);
        }
    });
}

#[test]
fn spans_and_events_say_what_the_program_was_in() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python);
        run(
            &mut target,
            "with probing.span('outer', step=3) as outer:
    outer.note(loss=0.5)
    probing.event('saved', path='/x', size=2**70, bad=float('nan'))
    try:
        with probing.span('inner'): raise KeyError('k')
    except KeyError: pass",
        );
        run(
            &mut target,
            "@probing.span('plain', tag='t')
def plain(x): return x + 1
@probing.span('coroutine')
async def coroutine():
    await asyncio.sleep(0)
    with probing.span('within'): await asyncio.sleep(0)
    return 2
@probing.span('generator')
def generator(): yield from (1, 2)
@probing.span('stream')
async def stream():
    for i in range(2): yield i
async def main():
    assert [i async for i in stream()] == [0, 1]
    return await asyncio.gather(coroutine(), coroutine())
assert plain(1) == 2 and plain.__name__ == 'plain'
assert asyncio.run(main()) == [2, 2]
assert list(generator()) == [1, 2]",
        );
        let lines = told(&sandbox, target.pid(), "python.trace_event");
        assert_eq!(
            lines[0],
            "kind text, name text, thread_id u32, span_id i64, parent_id i64, duration_ns i64, error text, attributes text, file text, lineno u32, func text, depth u32, step i64"
        );
        let (pid, mut shown) = (target.pid().to_string(), Vec::new());
        for line in &lines[1..] {
            let cells: Vec<&str> = line.splitn(8, ", ").collect();
            assert_eq!(cells[2], pid, "{line}");
            let lasted = if cells[5] == "-" { "-" } else { "N" };
            let rest = cells[7].trim_end_matches(", -, -, -, -, -");
            shown.push(
                [
                    cells[0], cells[1], cells[3], cells[4], lasted, cells[6], rest,
                ]
                .join(" "),
            );
        }
        assert_eq!(
            shown,
            [
                r#""begin" "outer" 1 - - - "{\"step\":3}""#,
                r#""event" "saved" - - - - "{\"bad\":\"nan\",\"path\":\"/x\",\"size\":1.1805916207174113e+21}""#,
                r#""begin" "inner" 2 1 - - -"#,
                r#""span" "inner" 2 1 N "KeyError" -"#,
                r#""span" "outer" 1 - N - "{\"loss\":0.5,\"step\":3}""#,
                r#""begin" "plain" 3 - - - "{\"tag\":\"t\"}""#,
                r#""span" "plain" 3 - N - "{\"tag\":\"t\"}""#,
                r#""begin" "stream" 4 - - - -"#,
                r#""span" "stream" 4 - N - -"#,
                r#""begin" "coroutine" 5 - - - -"#,
                r#""begin" "coroutine" 6 - - - -"#,
                r#""begin" "within" 7 5 - - -"#,
                r#""begin" "within" 8 6 - - -"#,
                r#""span" "within" 7 5 N - -"#,
                r#""span" "coroutine" 5 - N - -"#,
                r#""span" "within" 8 6 N - -"#,
                r#""span" "coroutine" 6 - N - -"#,
                r#""begin" "generator" 9 - - - -"#,
                r#""span" "generator" 9 - N - -"#,
            ]
        );
    });
}

#[test]
fn a_dataclass_declares_a_table() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python);
        run(
            &mut target,
            "@probing.table
@dataclasses.dataclass
class TrainStep:
    step: int
    loss: float
    name: 'str | None' = None
    extra: object = None
@probing.table('metrics.other')
class Other:
    ok: bool",
        );
        let head = "step i64, loss f64, name text";
        assert_eq!(told(&sandbox, target.pid(), "user.train_step"), [head]);
        assert_eq!(told(&sandbox, target.pid(), "metrics.other"), ["ok bool"]);
        run(
            &mut target,
            "TrainStep(1, 2).record(); TrainStep(2, 0.5, 'n', 7).record(); Other(True).record()",
        );
        assert_eq!(
            told(&sandbox, target.pid(), "user.train_step"),
            [
                "step i64, loss f64, name text, extra i64",
                "1, 2, -, -",
                "2, 0.5, \"n\", 7"
            ]
        );
        assert_eq!(
            told(&sandbox, target.pid(), "metrics.other"),
            ["ok bool", "true"]
        );
    });
}

#[test]
fn all_threads_record_into_one_table() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python);
        run(
            &mut target,
            "def work(n):
    for i in range(2000): probing.record('t', thread=n, i=i)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()",
        );
        let mut lines = told(&sandbox, target.pid(), "user.t");
        lines.remove(0);
        let mut next = [0; 8];
        for line in &lines {
            let (thread, i) = line.split_once(", ").unwrap();
            let thread: usize = thread.parse().unwrap();
            assert_eq!(i.parse(), Ok(next[thread]), "{line}");
            next[thread] += 1;
        }
        assert_eq!(next, [2000; 8]);
    });
}

#[test]
fn a_child_of_a_fork_records_for_itself() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python);
        run(&mut target, "@probing.table\nclass Declared:\n    n: int");
        run(&mut target, "probing.record('t', n=1)");
        target.say(
            &"child = os.fork()
if child == 0:
    for n in range(3): probing.record('t', n=100 + n)
    Declared(5).record()
    os._exit(0)
os.waitpid(child, 0); probing.record('t', n=2); print(child)"
                .replace('\n', "\\n"),
        );
        let child: u32 = target.line().parse().unwrap();
        assert_eq!(target.line(), "done");
        assert_eq!(told(&sandbox, target.pid(), "user.t"), ["n i64", "1", "2"]);
        assert_eq!(
            told(&sandbox, child, "user.t"),
            ["n i64", "100", "101", "102"]
        );
        assert_eq!(told(&sandbox, child, "user.declared"), ["n i64", "5"]);
        assert_eq!(told(&sandbox, target.pid(), "user.declared"), ["n i64"]);
    });
}

#[test]
fn rows_stay_when_the_probe_goes_and_when_the_program_ends() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox
            .target(python, "recording.py")
            .env("PROBING", "1")
            .start();
        let pid = target.pid();
        run(&mut target, "probing.record('t', n=1)");
        let ran = sandbox.probing(["-t", &pid.to_string(), "detach"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        run(&mut target, "probing.record('t', n=2)");
        assert_eq!(told(&sandbox, pid, "user.t"), ["n i64", "1", "2"]);
        assert_eq!(target.end().status, 0);
        assert_eq!(told(&sandbox, pid, "user.t"), ["n i64", "1", "2"]);
    });
}

#[test]
fn a_program_that_records_nothing_leaves_nothing() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = started(&sandbox, python);
        run(&mut target, "assert storage() is None");
        assert_eq!(target.end().status, 0);
        assert_eq!(sandbox.target_dirs(), Vec::<String>::new());
    });
}

#[test]
fn the_memory_for_rows_can_be_chosen() {
    every_python(|python| {
        let sandbox = sandbox();
        let kept = |bytes: &str| {
            let target = sandbox.target(python, "recording.py");
            let mut target = target.env("PROBING_STORE_BYTES", bytes).start();
            run(
                &mut target,
                "for n in range(50_000): probing.record('t', n=n)",
            );
            told(&sandbox, target.pid(), "user.t").len() - 1
        };
        let few = kept("256K");
        assert!((1_000..20_000).contains(&few), "{few}");
        assert_eq!(kept("64M"), 50_000);
        assert_eq!(kept("nonsense"), 50_000);
    });
}

#[test]
fn no_row_is_missing_without_a_word_while_programs_record_as_fast_as_they_can() {
    let python = &probing_testkit::Python::all()[0];
    let sandbox = sandbox();
    let recorders: Vec<Target> = (0..6)
        .map(|_| {
            let target = sandbox.target(python, "recording.py");
            let mut target = target.env("PROBING_STORE_BYTES", "1M").start();
            run(
                &mut target,
                "def work():\n    n = 0\n    while True:\n        probing.record('t', n=n)\n        n += 1\n\
                 worker = threading.Thread(target=work, daemon=True)\nprobing.record('t', n=-1)\nworker.start()",
            );
            target
        })
        .collect();
    let pids: Vec<String> = recorders
        .iter()
        .map(|target| target.pid().to_string())
        .collect();
    let sql = "SELECT pid, count(n) AS rows, max(n) - min(n) + 1 AS span FROM user.t GROUP BY pid";
    let mut arguments: Vec<&str> = pids.iter().flat_map(|pid| ["-t", pid]).collect();
    arguments.extend(["query", "--json", sql]);
    for _ in 0..10 {
        let ran = sandbox.probing(&arguments);
        assert_eq!(ran.status, 0, "{ran:?}");
        let rows = ran.json();
        let lines = ran.stderr.lines();
        let mut missing = lines.filter(|line| line.starts_with("{\"missing\":"));
        let missing: Value = missing.next().map_or(Value::Null, |line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        });
        for pid in &pids {
            let pid = pid.parse::<u32>().unwrap();
            let mut rows = rows.as_array().unwrap().iter();
            let is_complete = rows.any(|row| {
                // Numbers without a gap.
                row["pid"] == pid && row["rows"] == row["span"]
            });
            let told = missing["missing"].as_array().into_iter().flatten();
            let mut told = told.filter(|one| one["pid"] == pid);
            let is_told = told.any(|one| {
                let error = one["error"].as_str().unwrap();
                error.ends_with("overwritten before the query read them: user.t")
            });
            assert!(is_complete || is_told, "{pid}: {ran:?}");
        }
    }
}
