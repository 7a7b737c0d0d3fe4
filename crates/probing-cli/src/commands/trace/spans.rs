//! Spans as viewers show them: one track for each set of nested spans.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::commands::trace::rows::{Edge, Kind, Row, edges};

/// A span, and where it is put.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlacedSpan<'a> {
    pub(super) row: &'a Row,
    /// `None`: it had not ended.
    pub(super) ended: Option<i64>,
    /// Spans of one lane of a thread nest.
    pub(super) lane: usize,
}

/// Which spans may be in the first lane of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// All that nest.
    Spans,
    /// Those that nest with the calls of the thread, too.
    SpansAmongCalls,
}

/// All spans, each in the first lane in which it nests, in the order in which they began.
pub(super) fn spans(rows: &[Row], first: First) -> Vec<PlacedSpan<'_>> {
    let mut found = collect_spans(rows);
    let tops = match first {
        First::Spans => HashMap::new(),
        First::SpansAmongCalls => tops(rows),
    };
    let mut lanes: HashMap<(u32, u32), Vec<Vec<i64>>> = HashMap::new();
    for stretch in &mut found {
        let (began, ends) = (stretch.row.at, stretch.ends());
        let whose = (stretch.row.pid, stretch.row.thread);
        let is_among_calls = tops
            .get(&whose)
            .is_none_or(|tops| top_at(tops, began) == top_at(tops, ends));
        let lanes = lanes.entry(whose).or_default();
        let fits = |lane: &mut Vec<i64>| {
            while lane.pop_if(|end| *end <= began).is_some() {}
            lane.last().is_none_or(|outer| ends <= *outer)
        };
        let skipped = usize::from(!is_among_calls);
        let place = lanes.iter_mut().skip(skipped).position(fits);
        stretch.lane = place.map_or(lanes.len().max(skipped), |place| place + skipped);
        if lanes.len() <= stretch.lane {
            lanes.resize(stretch.lane + 1, Vec::new());
        }
        lanes[stretch.lane].push(ends);
    }
    found
}

/// The same in the order of time: what begins and ends in each lane.
pub(super) fn edges_of_spans(rows: &[Row], first: First) -> Vec<(usize, Edge<'_>)> {
    let mut edges = Vec::new();
    let mut open: HashMap<(u32, u32, usize), Vec<PlacedSpan<'_>>> = HashMap::new();
    for stretch in spans(rows, first) {
        let PlacedSpan { row, lane, .. } = stretch;
        let others = open.entry((row.pid, row.thread, lane)).or_default();
        while let Some(ended) = others.pop_if(|other| other.ends() <= row.at) {
            edges.push((lane, Edge::Close(ended.ends(), ended.row)));
        }
        edges.push((lane, Edge::Open(row)));
        others.push(stretch);
    }
    for stretch in open.into_values().flat_map(|left| left.into_iter().rev()) {
        let closed = stretch.ended.map(|at| Edge::Close(at, stretch.row));
        edges.extend(closed.map(|edge| (stretch.lane, edge)));
    }
    edges
}

impl PlacedSpan<'_> {
    fn ends(&self) -> i64 {
        self.ended.unwrap_or(i64::MAX)
    }
}

fn collect_spans(rows: &[Row]) -> Vec<PlacedSpan<'_>> {
    let left = rows.iter().filter(|row| row.kind == Kind::Span);
    let left: HashSet<_> = left.map(|row| (row.pid, row.span)).collect();
    let mut found = Vec::new();
    for row in rows {
        let ended = match (row.kind, row.took) {
            (Kind::Span, Some(took)) => Some(row.at + took),
            (Kind::Entered, _) if !left.contains(&(row.pid, row.span)) => None,
            _ => continue,
        };
        let lane = 0;
        found.push(PlacedSpan { row, ended, lane });
    }
    found.sort_by_key(|stretch| (stretch.row.at, Reverse(stretch.ends()), stretch.row.span));
    found
}

/// From when on, which call of a thread was the innermost one.
type Tops = Vec<(i64, Option<usize>)>;

fn tops(rows: &[Row]) -> HashMap<(u32, u32), Tops> {
    let mut threads: HashMap<(u32, u32), (Vec<usize>, Tops)> = HashMap::new();
    for (number, edge) in edges(rows).iter().enumerate() {
        let (Edge::Open(row) | Edge::Close(_, row)) = edge;
        let (open, tops) = threads.entry((row.pid, row.thread)).or_default();
        let at = match edge {
            Edge::Open(row) => {
                open.push(number);
                row.at
            }
            Edge::Close(at, _) => {
                open.pop();
                *at
            }
        };
        tops.push((at, open.last().copied()));
    }
    let tops = threads.into_iter().map(|(whose, (_, tops))| (whose, tops));
    tops.collect()
}

fn top_at(tops: &Tops, at: i64) -> Option<usize> {
    let behind = tops.partition_point(|(from, _)| *from <= at);
    behind.checked_sub(1).and_then(|place| tops[place].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::trace::rows::{Threads, parsed};

    const HEAD: &str = "pid,thread_id,at,kind,name,file,lineno,took,step,span,parent,rank,host\n";

    /// `name lane`, and `…` where it did not end; spans are numbered as they come.
    fn lanes(rows: &[(i64, &str, &str, i64)], first: First) -> Vec<String> {
        let line = |(number, (at, kind, name, took)): (usize, &(i64, &str, &str, i64))| {
            let file = if *kind == "call" || *kind == "return" {
                "f.py"
            } else {
                ""
            };
            format!("1,2,{at},{kind},{name},{file},1,{took},-1,{number},-1,-1,here\n")
        };
        let csv: String = rows.iter().enumerate().map(line).collect();
        let rows = parsed(&(HEAD.to_owned() + &csv), &Threads::default());
        let told = |stretch: &PlacedSpan<'_>| {
            let open = if stretch.ended.is_none() { "…" } else { "" };
            format!("{} {}{open}", stretch.row.name, stretch.lane)
        };
        spans(&rows, first).iter().map(told).collect()
    }

    #[test]
    fn spans_that_overlap_are_in_different_lanes() {
        let rows = [
            (0, "span", "all", 100),
            (1, "span", "one", 20),
            (5, "span", "two", 30),
            (30, "span", "three", 4),
            (40, "begin", "open", -1),
            (50, "span", "last", 10),
        ];
        let expected = ["all 0", "one 0", "two 1", "three 0", "open 1…", "last 0"];
        assert_eq!(lanes(&rows, First::Spans), expected);
    }

    #[test]
    fn spans_that_overlap_calls_are_not_among_them() {
        let rows = [
            (0, "span", "around", 100),
            (10, "call", "f", -1),
            (11, "span", "inside", 1),
            (12, "span", "across", 20),
            (20, "return", "f", 10),
            (21, "span", "behind", 2),
        ];
        let expected = ["around 0", "inside 0", "across 1", "behind 0"];
        assert_eq!(lanes(&rows, First::SpansAmongCalls), expected);
        let alone = ["around 0", "inside 0", "across 0", "behind 0"];
        assert_eq!(lanes(&rows, First::Spans), alone);
    }
}
