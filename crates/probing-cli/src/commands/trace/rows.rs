//! Rows of traces and spans as intervals, from which every format is made.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is asked for; times as whole numbers.
pub(super) const SQL: &str = "SELECT pid, thread_id, arrow_cast(ts, 'Int64') AS at, kind, name, \
    coalesce(file, '') AS file, coalesce(lineno, 0) AS lineno, coalesce(duration_ns, -1) AS took, \
    coalesce(step, -1) AS step, coalesce(span_id, -1) AS span, coalesce(parent_id, -1) AS parent, \
    coalesce(rank, -1) AS rank, coalesce(host, '') AS host FROM python.trace_event ORDER BY ts";

/// How threads are called, of processes that still run.
pub(super) const THREADS_SQL: &str =
    "SELECT coalesce(host, '') AS host, pid, thread_id, name FROM python.threads WHERE name <> ''";

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// Where several machines have a process of this pid, another number.
    pub(super) pid: u32,
    /// What viewers call the process, where that is more than its pid: `rank 3`.
    pub(super) whose: Option<Arc<str>>,
    pub(super) thread: u32,
    /// What Python calls the thread, where it is still there.
    pub(super) thread_name: Option<Arc<str>>,
    /// Nanoseconds since 1970.
    pub(super) at: i64,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) took: Option<i64>,
    pub(super) step: Option<i64>,
    pub(super) span: Option<i64>,
    pub(super) parent: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A function begins, or resumes.
    Begin,
    /// It ends, or is left for the time being.
    End,
    /// It ends by an exception.
    Failed,
    /// It comes to a line.
    Line,
    /// A span that was left; its time is when it began.
    Span,
    /// A span that was entered.
    Entered,
    Event,
}

impl Kind {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "call" | "resume" => Self::Begin,
            "return" | "yield" => Self::End,
            "exception" => Self::Failed,
            "line" => Self::Line,
            "span" => Self::Span,
            "begin" => Self::Entered,
            "event" => Self::Event,
            _ => return None,
        })
    }
}

/// The rows of a table that was written as CSV.
pub(super) fn parsed(csv: &str, threads: &Threads) -> Vec<Row> {
    let mut processes = Processes::default();
    records(csv)
        .filter_map(|fields| row(&fields, &mut processes, threads))
        .collect()
}

/// Those behind the names of columns.
fn records(csv: &str) -> impl Iterator<Item = Vec<String>> {
    Records { rest: csv }.skip(1)
}

/// Names of threads, by host, pid and number.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<(String, u32, u32), Arc<str>>);

impl Threads {
    pub(super) fn parsed(csv: &str) -> Self {
        let thread = |fields: Vec<String>| {
            let [host, pid, thread, name] = <[String; 4]>::try_from(fields).ok()?;
            Some((
                (host, pid.parse().ok()?, thread.parse().ok()?),
                Arc::from(name),
            ))
        };
        Self(records(csv).filter_map(thread).collect())
    }

    fn name(&self, host: &str, pid: u32, thread: u32) -> Option<Arc<str>> {
        self.0.get(&(host.to_owned(), pid, thread)).cloned()
    }
}

/// The number that a process has in the file, and its name there.
type Process = (u32, Option<Arc<str>>);

/// Those that rows are of.
#[derive(Default)]
struct Processes {
    /// By host and pid.
    known: HashMap<(String, u32), Process>,
    numbers: HashSet<u32>,
}

impl Processes {
    /// Containers count their processes from 1: those of two machines may have one pid.
    fn find(&mut self, host: &str, pid: u32, rank: Option<i64>) -> Process {
        let key = (host.to_owned(), pid);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let number = (pid..=u32::MAX).find(|number| self.numbers.insert(*number));
        let number = number.unwrap_or(pid);
        let name = match rank {
            Some(rank) => Some(format!("rank {rank}")),
            None if number != pid => Some(format!("pid {pid} on {host}")),
            None => None,
        };
        let found = (number, name.map(Arc::from));
        self.known.insert(key, found.clone());
        found
    }
}

fn row(fields: &[String], processes: &mut Processes, threads: &Threads) -> Option<Row> {
    let [
        pid,
        thread,
        at,
        kind,
        name,
        file,
        line,
        took,
        step,
        span,
        parent,
        rank,
        host,
    ] = fields
    else {
        return None;
    };
    let known = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
    let (pid, thread) = (pid.parse().ok()?, thread.parse().ok()?);
    let thread_name = threads.name(host, pid, thread);
    let (pid, whose) = processes.find(host, pid, known(rank));
    let kind = Kind::named(kind)?;
    Some(Row {
        pid,
        whose,
        thread,
        thread_name,
        at: at.parse().ok()?,
        kind,
        name: if kind == Kind::Line {
            format!("{name}:{line}")
        } else {
            name.clone()
        },
        file: file.clone(),
        line: line.parse().ok()?,
        took: known(took),
        step: known(step),
        span: known(span),
        parent: known(parent),
    })
}

/// Lines of CSV, with fields in quotation marks where they need them.
struct Records<'a> {
    rest: &'a str,
}

impl Iterator for Records<'_> {
    type Item = Vec<String>;

    fn next(&mut self) -> Option<Vec<String>> {
        if self.rest.is_empty() {
            return None;
        }
        let mut fields = Vec::new();
        loop {
            let (field, rest) = if let Some(quoted) = self.rest.strip_prefix('"') {
                quoted_field(quoted)
            } else {
                let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
                (self.rest[..end].to_owned(), &self.rest[end..])
            };
            fields.push(field);
            let mut rest = rest.chars();
            let separator = rest.next();
            self.rest = rest.as_str();
            if separator != Some(',') {
                return Some(fields);
            }
        }
    }
}

/// The field, and what comes behind its closing mark.
fn quoted_field(text: &str) -> (String, &str) {
    let mut field = String::new();
    let mut rest = text;
    while let Some(end) = rest.find('"') {
        field.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(behind) => {
                field.push('"');
                rest = behind;
            }
            None => return (field, rest),
        }
    }
    (field + rest, "")
}

/// Something that begins or ends on a thread, such that they nest: what ends is what began last.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Edge<'a> {
    Open(&'a Row),
    /// When, and what began.
    Close(i64, &'a Row),
}

/// Calls of each thread, and lines in them, as edges that nest. Ends whose beginnings are gone are left out; what has not ended
/// stays open.
pub(super) fn edges(rows: &[Row]) -> Vec<Edge<'_>> {
    let mut edges = Vec::with_capacity(rows.len());
    let mut open: HashMap<(u32, u32), Vec<&Row>> = HashMap::new();
    for row in rows {
        let stack = open.entry((row.pid, row.thread)).or_default();
        if let Some(line) = stack.pop_if(|last| has_left(last, row)) {
            let at = line.took.map_or(row.at, |took| line.at + took);
            edges.push(Edge::Close(at, line));
        }
        match row.kind {
            Kind::Begin | Kind::Line => {
                stack.push(row);
                edges.push(Edge::Open(row));
            }
            Kind::End | Kind::Failed => {
                let is_it = |other: &&Row| {
                    (&other.name, &other.file, other.line) == (&row.name, &row.file, row.line)
                };
                let Some(place) = stack.iter().rposition(is_it) else {
                    continue;
                };
                // Those inside it have ended unseen.
                for inner in stack.drain(place..).rev() {
                    edges.push(Edge::Close(row.at, inner));
                }
            }
            Kind::Span | Kind::Entered | Kind::Event => {}
        }
    }
    edges
}

/// Whether a line has ended when the next thing happens: it says so, or that is the next line.
fn has_left(line: &Row, next: &Row) -> bool {
    let has_ended = match line.took {
        Some(took) => line.at + took <= next.at,
        None => next.kind == Kind::Line,
    };
    line.kind == Kind::Line && has_ended
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "pid,thread_id,at,kind,name,file,lineno,took,step,span,parent,rank,host\n";

    fn names(csv: &str) -> Vec<String> {
        let rows = parsed(&format!("{HEAD}{csv}"), &Threads::default());
        let edges = edges(&rows);
        let name = |edge: &Edge<'_>| match edge {
            Edge::Open(row) => format!("+{}", row.name),
            Edge::Close(at, row) => format!("-{} {at}", row.name),
        };
        edges.iter().map(name).collect()
    }

    #[test]
    fn fields_may_have_commas_and_quotation_marks() {
        let row = "1,2,3,event,\"a \"\"b\"\", c\",,0,-1,7,-1,-1,-1,here\n";
        let threads = Threads::parsed("host,pid,thread_id,name\nhere,1,2,\"x, y\"\n");
        let rows = parsed(&format!("{HEAD}{row}"), &threads);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].name, "a \"b\", c");
        assert_eq!((rows[0].step, rows[0].took), (Some(7), None));
        assert_eq!(rows[0].thread_name.as_deref(), Some("x, y"));
    }

    #[test]
    fn processes_of_two_machines_are_two_though_they_have_one_pid() {
        let row = |pid: u32, rank: i32, host: &str| {
            format!("{pid},2,3,event,e,,0,-1,-1,-1,-1,{rank},{host}\n")
        };
        let rows = [
            row(7, 0, "a"),
            row(7, 1, "b"),
            row(8, -1, "a"),
            row(7, 0, "a"),
            row(9, -1, "a"),
        ];
        let rows = parsed(&(HEAD.to_owned() + &rows.concat()), &Threads::default());
        let told: Vec<_> = rows
            .iter()
            .map(|row| (row.pid, row.whose.as_deref()))
            .collect();
        let (first, second) = ((7, Some("rank 0")), (8, Some("rank 1")));
        let third = (9, Some("pid 8 on a"));
        let fourth = (10, Some("pid 9 on a"));
        assert_eq!(told, [first, second, third, first, fourth]);
    }

    #[test]
    fn lines_lie_in_their_functions_and_calls_in_lines() {
        let row = |at: u32, kind: &str, name: &str, line: u32, took: i32| {
            format!("1,2,{at},{kind},{name},f.py,{line},{took},-1,-1,-1,-1,here\n")
        };
        let rows = [
            row(1, "call", "f", 1, -1),
            row(2, "line", "f", 2, 3),
            row(3, "call", "g", 9, -1),
            row(4, "return", "g", 9, 1),
            row(5, "line", "f", 3, -1),
            row(6, "line", "f", 4, -1),
            row(7, "return", "f", 1, 6),
            row(8, "line", "main", 20, 1),
            row(10, "call", "f", 1, -1),
        ];
        assert_eq!(
            names(&rows.concat()),
            [
                "+f",
                "+f:2",
                "+g",
                "-g 4",
                "-f:2 5",
                "+f:3",
                "-f:3 6",
                "+f:4",
                "-f:4 7",
                "-f 7",
                "+main:20",
                "-main:20 9",
                "+f",
            ]
        );
    }

    #[test]
    fn edges_nest_whatever_is_missing() {
        let row = |at: u32, kind: &str, name: &str| {
            format!("1,2,{at},{kind},{name},f.py,1,-1,-1,-1,-1,-1,here\n")
        };
        let rows = [
            row(1, "return", "gone"),
            row(2, "call", "f"),
            row(3, "call", "g"),
            row(4, "yield", "g"),
            row(5, "resume", "g"),
            row(6, "call", "lost"),
            row(7, "exception", "f"),
            row(8, "call", "open"),
        ];
        assert_eq!(
            names(&rows.concat()),
            [
                "+f", "+g", "-g 4", "+g", "+lost", "-lost 7", "-g 7", "-f 7", "+open"
            ]
        );
    }
}
