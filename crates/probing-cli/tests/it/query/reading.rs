//! Queries only read, whatever they say; and what is wrong with one is told.

use probing_testkit::{CommandResult, Python};

use super::query;
use crate::sandbox;

/// Each of them, on one target.
fn asked(statements: &[&str], check: impl Fn(&str, &CommandResult)) {
    let sandbox = sandbox();
    let target = sandbox.target(&Python::all()[0], "idle.py").start();
    for sql in statements {
        let file = sandbox.path().join("made");
        let sql = sql.replace("FILE", file.to_str().unwrap());
        let ran = query(&sandbox, &target, &[&sql]);
        check(&sql, &ran);
        assert!(!file.exists(), "{sql} wrote a file");
    }
    assert_eq!(target.end().status, 0);
}

#[test]
fn whatever_would_change_something_is_refused() {
    let statements = [
        "CREATE TABLE t (x INT)",
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "CREATE SCHEMA s",
        "CREATE DATABASE d",
        "CREATE FUNCTION f(INT) RETURNS INT RETURN 1",
        "CREATE EXTERNAL TABLE t (x INT) STORED AS CSV LOCATION '/etc/passwd'",
        "DROP TABLE python.backtrace",
        "DROP VIEW v",
        "DROP SCHEMA python",
        "ALTER TABLE python.backtrace ADD COLUMN x INT",
        "TRUNCATE TABLE python.backtrace",
        "INSERT INTO process.envs VALUES (1, 2, 'h', 'x', 'y')",
        "UPDATE process.envs SET value = 'x'",
        "DELETE FROM process.envs",
        "MERGE INTO process.envs USING process.envs AS e ON true WHEN MATCHED THEN DELETE",
        "COPY (SELECT 1) TO 'FILE'",
        "COPY process.envs TO 'FILE' STORED AS CSV",
        "SET datafusion.execution.batch_size = 1",
        "RESET datafusion.execution.batch_size",
        "BEGIN",
        "COMMIT",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "DEALLOCATE p",
        "USE python",
        "ANALYZE TABLE process.envs",
        "EXPLAIN INSERT INTO process.envs VALUES (1, 2, 'h', 'x', 'y')",
        "EXPLAIN COPY (SELECT 1) TO 'FILE'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'FILE'",
        "SHOW ALL",
        "SHOW FUNCTIONS",
        "SHOW CREATE TABLE process.envs",
        "CALL f()",
        "VACUUM",
        "GRANT ALL ON process.envs TO x",
        "KILL 1",
    ];
    asked(&statements, |sql, ran| {
        assert_ne!(ran.status, 0, "{sql}: {ran:?}");
        assert_eq!(ran.stdout, "", "{sql}: {ran:?}");
        let is_told = ran.stderr.starts_with("error: queries only read: ")
            || ran.stderr.starts_with("error: not SQL: ");
        assert!(is_told, "{sql}: {ran:?}");
    });
    asked(
        &[
            "SELECT 1 AS x INTO t",
            "WITH t AS (SELECT 1) SELECT * INTO u FROM t",
        ],
        |sql, ran| {
            assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{sql}: {ran:?}");
        },
    );
}

#[test]
fn no_file_can_be_reached() {
    let statements = [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'FILE.csv'",
        "SELECT * FROM \"/etc/passwd\"",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_parquet('x.parquet')",
        "SELECT * FROM read_json('x.json')",
        "SELECT * FROM parquet_metadata('x.parquet')",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM glob('*')",
        "SELECT load_file('/etc/passwd')",
        "SELECT pg_read_file('/etc/passwd')",
    ];
    asked(&statements, |sql, ran| {
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{sql}: {ran:?}");
        assert!(!ran.stderr.contains("root:"), "{sql}: {ran:?}");
    });
}

#[test]
fn code_in_a_query_stays_text() {
    let statements = [
        "SELECT * FROM \"__import__('os').system('touch FILE')\"",
        "SELECT * FROM python.\"__import__('os').system('touch FILE')\"",
        "SELECT \"__import__('os').system('touch FILE')\" FROM python.backtrace",
        "SELECT * FROM python.backtrace AS \"__import__('os').system('touch FILE')\" WHERE no",
        "SELECT eval('1 + 1')",
    ];
    asked(&statements, |sql, ran| {
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{sql}: {ran:?}");
    });
}

#[test]
fn what_is_wrong_with_a_query_is_told_and_what_may_be_meant() {
    let check = |sql: &str, status: i32, words: &str| {
        asked(&[sql], |sql, ran| {
            assert_eq!(
                (ran.status, ran.stdout.as_str()),
                (status, ""),
                "{sql}: {ran:?}"
            );
            assert_eq!(ran.stderr, words, "{sql}");
        });
    };
    check(
        "SELECT * FROM python.bactrace",
        1,
        "error: no such table: python.bactrace\nhint: did you mean python.backtrace? `SHOW TABLES` lists all\n",
    );
    check(
        "SELECT * FROM backtrace",
        1,
        "error: no such table: backtrace\nhint: did you mean python.backtrace? `SHOW TABLES` lists all\n",
    );
    check(
        "SELECT * FROM no.such.thing",
        1,
        "error: no such table: no.such.thing\nhint: `SHOW TABLES` lists all tables\n",
    );
    check(
        "SELECT function FROM python.backtrace",
        1,
        "error: no such column: function\nhint: did you mean func?\n",
    );
    check(
        "SELECT 1 FROM",
        2,
        "error: not SQL: expected identifier, found EOF\n",
    );
    check(
        "SELECT func\nFROM python.backtrace WERE depth = 0",
        2,
        "error: not SQL: expected end of statement, found depth\n  FROM python.backtrace WERE depth = 0\n                             ^\n",
    );
    check(
        "SELECT 1; SELECT 2",
        2,
        "error: more than one statement: 2\nhint: run the statements one after the other\n",
    );
    check(
        "DELETE FROM process.envs",
        1,
        "error: queries only read: DELETE FROM is not possible here\n\
         hint: SELECT, WITH, VALUES, EXPLAIN, DESCRIBE and SHOW TABLES are; `eval` runs code in a target\n",
    );
}

#[test]
fn a_query_that_is_too_large_or_too_deep_ends_with_an_error() {
    let sum = format!("SELECT {}", vec!["1"; 500].join(" + "));
    let nested = format!("SELECT {}1{}", "(".repeat(500), ")".repeat(500));
    asked(&[&sum], |_, ran| assert_eq!(ran.status, 0, "{ran:?}"));
    asked(&[&nested], |_, ran| assert_eq!(ran.status, 2, "{ran:?}"));
}
