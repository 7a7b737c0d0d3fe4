//! The growth between the first and the last reading of a heap, and its steadiness.

use std::collections::HashMap;
use std::hash::Hash;

use probing_proto::message::TracebackFrame;
use probing_proto::message::recorders::{Heap, Live};
use probing_proto::report::{Growth, LeakReport, SiteGrowth, TypeGrowth};

use crate::commands::leak::HeapHistory;
use crate::commands::list;
use probing_proto::text::visible;

/// Fewer samples than this may be chance.
const FEWEST_SAMPLES: i64 = 3;
/// Frames of a stack that are shown.
const SHOWN_FRAMES: usize = 4;

pub(super) fn report(seen: &HeapHistory, top: usize) -> LeakReport {
    let heaps = &seen.heaps;
    let (first, last) = (&heaps[0], &heaps[heaps.len() - 1]);
    let took = last.taken_at_nanos.saturating_sub(first.taken_at_nanos);
    let rss = |heap: &Heap| heap.rss.map(|rss| rss as i64);
    let sum = |heap: &Heap| {
        heap.sites
            .iter()
            .map(|site| site.live.bytes as i64)
            .sum::<i64>()
    };
    let held = heaps.iter().map(|heap| heap.held_nanos).max().unwrap_or(0);
    LeakReport {
        pid: Some(seen.pid),
        seconds: took as f64 / 1e9,
        moments: heaps.len(),
        ended: seen.ended,
        rss_growth: rss(last).zip(rss(first)).map(|(last, first)| last - first),
        heap_growth: sum(last) - sum(first),
        held_seconds: held as f64 / 1e9,
        sites: sites(heaps, top),
        types: types(heaps, top),
    }
}

fn sites(heaps: &[Heap], top: usize) -> Vec<SiteGrowth> {
    let stacks: HashMap<u64, &Vec<TracebackFrame>> = heaps
        .iter()
        .flat_map(|heap| heap.sites.iter().map(|site| (site.id, &site.stack)))
        .collect();
    let looks = heaps.iter().map(|heap| {
        let sites = heap.sites.iter();
        sites.map(|site| (site.id, site.live)).collect()
    });
    let grown = grown(&looks.collect::<Vec<_>>(), top).into_iter();
    grown
        .map(|(id, growth)| SiteGrowth {
            growth,
            stack: stacks
                .get(&id)
                .map(|stack| (*stack).clone())
                .unwrap_or_default(),
        })
        .collect()
}

fn types(heaps: &[Heap], top: usize) -> Vec<TypeGrowth> {
    let looks = heaps.iter().map(|heap| {
        let types = heap.types.iter();
        types.map(|kind| (kind.name.as_str(), kind.live)).collect()
    });
    let grown = grown(&looks.collect::<Vec<_>>(), top).into_iter();
    grown
        .map(|(name, growth)| TypeGrowth {
            growth,
            name: name.to_owned(),
        })
        .collect()
}

/// What grew, by enough samples and from more moments to the next than not, most first.
fn grown<Key: Copy + Eq + Hash + Ord>(
    looks: &[HashMap<Key, Live>],
    top: usize,
) -> Vec<(Key, Growth)> {
    let last = looks.last().into_iter().flat_map(HashMap::keys);
    let mut grown: Vec<(Key, Growth)> = last
        .map(|key| {
            let series = looks
                .iter()
                .map(|look| look.get(key).copied().unwrap_or_default());
            (*key, growth(&series.collect::<Vec<_>>()))
        })
        .filter(|(_, growth)| {
            growth.bytes > 0
                && growth.samples >= FEWEST_SAMPLES
                && 2 * growth.rose >= looks.len() - 1
        })
        .collect();
    grown.sort_by_key(|(key, growth)| (-growth.bytes, *key));
    grown.truncate(top);
    grown
}

fn growth(series: &[Live]) -> Growth {
    let (first, last) = (series[0], series[series.len() - 1]);
    let rose = series.windows(2).filter(|two| two[1].bytes > two[0].bytes);
    let more = |last: u64, first: u64| last as i64 - first as i64;
    Growth {
        bytes: more(last.bytes, first.bytes),
        blocks: more(last.blocks, first.blocks),
        samples: more(last.samples, first.samples),
        rose: rose.count(),
    }
}

/// A table of places, and one of types.
pub(super) fn lines(report: &LeakReport) -> Vec<String> {
    let rss = report
        .rss_growth
        .map_or_else(String::new, |rss| format!(", rss {}", signed(rss)));
    let mut lines = vec![format!(
        "in {:.1} s: Python's heap {}{rss}",
        report.seconds,
        signed(report.heap_growth)
    )];
    let of = report.moments - 1;
    if !report.sites.is_empty() {
        lines.push(head("ALLOCATED IN"));
    }
    for site in &report.sites {
        lines.push(row(&site.growth, of, report.seconds, &stack(&site.stack)));
    }
    if !report.types.is_empty() {
        lines.push(String::new());
        lines.push(head("TYPE"));
    }
    for kind in &report.types {
        lines.push(row(&kind.growth, of, report.seconds, &kind.name));
    }
    lines
}

fn head(what: &str) -> String {
    format!(
        "{:>10}  {:>12}  {:>9}  {:>5}  {what}",
        "GROWTH", "PER SECOND", "BLOCKS", "ROSE"
    )
}

fn row(growth: &Growth, of: usize, seconds: f64, what: &str) -> String {
    let what = visible::line(what);
    let a_second = (growth.bytes as f64 / seconds.max(1e-9)) as i64;
    format!(
        "{:>10}  {:>12}  {:>+9}  {:>5}  {what}",
        signed(growth.bytes),
        format!("{}/s", signed(a_second)),
        growth.blocks,
        format!("{}/{of}", growth.rose)
    )
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { '-' } else { '+' };
    format!("{sign}{}", list::size(bytes.unsigned_abs()))
}

/// `handle (app.py:12) < serve (app.py:40)`: who called whom, innermost first.
fn stack(frames: &[TracebackFrame]) -> String {
    if frames.is_empty() {
        return "(no Python code)".to_owned();
    }
    let shown = frames.iter().take(SHOWN_FRAMES).map(|frame| {
        let file = frame.file.rsplit('/').next().unwrap_or(&frame.file);
        format!("{} ({file}:{})", frame.func, frame.lineno)
    });
    let more = frames.len().saturating_sub(SHOWN_FRAMES);
    let more = (more > 0).then(|| format!("{more} more"));
    shown.chain(more).collect::<Vec<_>>().join(" < ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(sizes: &[(&'static str, u64)]) -> HashMap<&'static str, Live> {
        let live = |samples: u64| Live {
            bytes: samples << 19,
            blocks: samples,
            samples,
        };
        sizes
            .iter()
            .map(|(name, samples)| (*name, live(*samples)))
            .collect()
    }

    #[test]
    fn what_grows_steadily_is_told_and_chance_is_not() {
        let looks = [
            look(&[("cache", 50), ("once", 1)]),
            look(&[("cache", 90), ("leak", 4), ("once", 9)]),
            look(&[("cache", 40), ("leak", 8), ("once", 9), ("chance", 1)]),
            look(&[("cache", 52), ("leak", 12), ("once", 9), ("chance", 2)]),
        ];
        let told = grown(&looks, 10);
        let names: Vec<&str> = told.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["leak"]);
        assert_eq!((told[0].1.rose, told[0].1.samples), (3, 12));
        assert!(grown(&looks[..1], 10).is_empty());
    }

    #[test]
    fn a_stack_is_told_from_the_inside_out() {
        let frame = |func: &str, lineno| TracebackFrame {
            func: func.to_owned(),
            file: "/srv/app.py".to_owned(),
            lineno,
        };
        assert_eq!(stack(&[]), "(no Python code)");
        assert_eq!(
            stack(&[frame("handle", 12), frame("serve", 40)]),
            "handle (app.py:12) < serve (app.py:40)"
        );
    }
}
