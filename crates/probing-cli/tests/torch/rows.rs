//! Rows that leave by a file or a pipe, read back by somebody else's reader.
//!
//! (It is installed beside torch.)

use std::process::Command;

use probing_testkit::{CommandResult, Python};

use crate::sandbox;

/// Types and values of each file, by `pyarrow`.
const READ: &str = "
import sys, pyarrow as pa, pyarrow.parquet as pq
for path in sys.argv[1:]:
    table = pa.ipc.open_stream(path).read_all() if path.endswith('.arrow') else pq.read_table(path)
    hidden = {'pid', 'rank', 'host', 'ts', 'thread_id', 'file', 'lineno'}
    print(path.rpartition('/')[2], table.num_rows)
    for field in table.schema:
        if field.name not in hidden:
            print(' ', field.name, field.type, table[field.name].to_pylist())
        elif field.name == 'ts':
            print(' ', field.name, field.type)
";

#[test]
fn files_and_streams_are_read_by_others() {
    let (sandbox, python) = (sandbox(), Python::with_torch());
    let mut target = sandbox.target(&python, "recording.py").start();
    let pid = target.pid().to_string();
    for line in [
        "probing.record('train', step=1, loss=0.5, name='fwd', ok=True)",
        "probing.record('train', step=-2**63, loss=float('nan'), name='a text of more than twelve bytes', ok=None)",
        "probing.record('train', step=None, loss=float('-inf'), name='ä', ok=False)",
        "probing.event('saved', path='/x')",
    ] {
        target.say(line);
        assert_eq!(target.line(), "done", "{line}");
    }
    let folder = sandbox.path().join("rows");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let ran = sandbox.probing(["-t", &pid, "export", "--parquet", folder.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let (asked, streamed) = (path("asked.parquet"), path("streamed.arrow"));
    let sql = "SELECT step, loss, name, ok FROM train WHERE loss = 0.5";
    let ran = sandbox.probing(["-t", &pid, "query", "--parquet", &asked, sql]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let mut command = sandbox.command();
    let stream = std::fs::File::create(&streamed).unwrap();
    command.args([
        "-t",
        &pid,
        "query",
        "--arrow",
        "SELECT * FROM train ORDER BY ts",
    ]);
    assert!(command.stdout(stream).status().unwrap().success());
    let mut read = Command::new(&python.path);
    read.args([
        "-c",
        READ,
        &path("python.trace_event.parquet"),
        &path("user.train.parquet"),
    ]);
    let read = CommandResult::to_the_end({
        read.args([asked, streamed]);
        read
    });
    insta::assert_snapshot!(read.ok(), @r#"
    python.trace_event.parquet 1
      ts timestamp[ns, tz=+00:00]
      kind string ['event']
      name string ['saved']
      span_id int64 [None]
      parent_id int64 [None]
      duration_ns int64 [None]
      error string [None]
      attributes string ['{"path":"/x"}']
      func string [None]
      depth uint32 [None]
      step int64 [None]
    user.train.parquet 3
      ts timestamp[ns, tz=+00:00]
      step int64 [1, -9223372036854775808, None]
      loss double [0.5, nan, -inf]
      name string ['fwd', 'a text of more than twelve bytes', 'ä']
      ok bool [True, None, False]
    asked.parquet 1
      step int64 [1]
      loss double [0.5]
      name string ['fwd']
      ok bool [True]
    streamed.arrow 3
      ts timestamp[ns, tz=+00:00]
      step int64 [1, -9223372036854775808, None]
      loss double [0.5, nan, -inf]
      name string ['fwd', 'a text of more than twelve bytes', 'ä']
      ok bool [True, None, False]
    "#);
}
