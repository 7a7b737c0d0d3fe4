//! Files for viewers, held against what their formats ask for.

use std::collections::HashMap;

use probing_testkit::every_python;
use serde_json::Value;

use super::Traced;

/// A file of a program whose functions call each other, fail, are left and gone on with, in several threads.
fn exported(traced: &Traced, format: &str) -> Vec<u8> {
    let file = traced.sandbox.runtime_dir().join(format!("file.{format}"));
    let path = file.display().to_string();
    traced.probing(&["trace", "--export", format, "-o", &path]);
    std::fs::read(&file).unwrap()
}

#[test]
fn files_are_what_their_viewers_ask_for() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "--module", "__main__"]);
        traced.run("for i in range(3): trainer.fit(1.0)");
        traced.run(
            "caught(1); list(counted(2)); asyncio.run(waiting(1)); recursive(5); in_threads(3)",
        );
        is_for_chrome(&exported(&traced, "chrome"));
        is_for_speedscope(&exported(&traced, "speedscope"));
        let perfetto = exported(&traced, "perfetto");
        let (slices, open) = slices(&perfetto);
        assert!(slices > 10 && open == 0, "{slices}, {open}");
        let main = b"MainThread";
        assert!(perfetto.windows(main.len()).any(|bytes| bytes == main));
    });
}

/// Two tasks, each in a span while the other is, and a span that does not end.
const TASKS: &str = "
import probing

async def task(name, others):
    with probing.span(name):
        trainer.fit(1.0)
        for _ in range(others): await asyncio.sleep(0)
        trainer.fit(1.0)

async def tasks():
    with probing.span('all'):
        await asyncio.gather(task('one', 2), task('two', 4))

asyncio.run(tasks())
probing.span('open').__enter__(); trainer.fit(1.0)";

#[test]
fn spans_that_overlap_or_never_end_are_in_files_too() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "Trainer.fit"]);
        traced.run(TASKS);
        let chrome: Value = serde_json::from_slice(&exported(&traced, "chrome")).unwrap();
        let events = chrome["traceEvents"].as_array().unwrap();
        let phases = |name: &str| -> Vec<&str> {
            let its = events.iter().filter(|event| event["name"] == name);
            its.map(|event| event["ph"].as_str().unwrap()).collect()
        };
        assert_eq!(phases("Trainer.fit"), ["X"; 5]);
        assert_eq!(phases("all"), ["X"]);
        assert_eq!(phases("one"), ["X"]);
        assert_eq!(phases("two"), ["b", "e"]);
        assert_eq!(phases("open"), ["B"]);
        nest(events.iter().filter(|event| event["ph"] == "X"));
        // Nine slices, of which one never ended.
        assert_eq!(slices(&exported(&traced, "perfetto")), (9, 1));
    });
}

/// Complete events: each with all that one must have, and those of a thread inside each other or apart.
fn is_for_chrome(file: &[u8]) {
    let chrome: Value = serde_json::from_slice(file).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap().iter();
    let (names, events): (Vec<_>, Vec<_>) = events.partition(|event| event["ph"] == "M");
    // The others have ended.
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(names[0]["name"], "thread_name");
    assert_eq!(names[0]["args"]["name"], "MainThread");
    assert!(nest(events.into_iter()) > 1, "several threads");
}

/// So many threads.
fn nest<'a>(events: impl Iterator<Item = &'a Value>) -> usize {
    let mut of_threads: HashMap<(u64, u64), Vec<(f64, f64)>> = HashMap::new();
    for event in events {
        assert_eq!(event["ph"], "X", "{event}");
        assert!(
            event["name"].is_string() && event["cat"].is_string(),
            "{event}"
        );
        let number = |name: &str| {
            event[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}: {event}"))
        };
        let whose = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        let (began, took) = (number("ts"), number("dur"));
        assert!(began >= 0.0 && took >= 0.0, "{event}");
        of_threads
            .entry(whose)
            .or_default()
            .push((began, began + took));
    }
    for spans in of_threads.values_mut() {
        spans.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.total_cmp(&one.1)));
        let mut open: Vec<f64> = Vec::new();
        for (began, ended) in spans {
            open.retain(|end| *end > *began);
            // Times are in microseconds, with three digits behind the point.
            assert!(open.last().is_none_or(|outer| *ended <= *outer + 0.002));
            open.push(*ended);
        }
    }
    of_threads.len()
}

/// Opened and closed in turn, in the order of time, and by frames that there are.
fn is_for_speedscope(file: &[u8]) {
    let speedscope: Value = serde_json::from_slice(file).unwrap();
    assert_eq!(
        speedscope["$schema"],
        "https://www.speedscope.app/file-format-schema.json"
    );
    let frames = speedscope["shared"]["frames"].as_array().unwrap();
    assert!(frames.iter().all(|frame| frame["name"].is_string()));
    let profiles = speedscope["profiles"].as_array().unwrap();
    assert!(profiles.len() > 1, "several threads");
    let name = profiles[0]["name"].as_str().unwrap();
    assert!(name.starts_with("MainThread of process "), "{name}");
    for profile in profiles {
        assert_eq!(
            (&profile["type"], &profile["unit"]),
            (&"evented".into(), &"nanoseconds".into())
        );
        assert!(profile["name"].is_string());
        let [start, end] = ["startValue", "endValue"].map(|at| profile[at].as_i64().unwrap());
        let mut open = Vec::new();
        let mut last = start;
        for event in profile["events"].as_array().unwrap() {
            let (at, frame) = (
                event["at"].as_i64().unwrap(),
                event["frame"].as_u64().unwrap(),
            );
            assert!(
                (last..=end).contains(&at) && (frame as usize) < frames.len(),
                "{event}"
            );
            last = at;
            match event["type"].as_str() {
                Some("O") => open.push(frame),
                Some("C") => assert_eq!(open.pop(), Some(frame)),
                _ => panic!("{event}"),
            }
        }
        assert!(open.is_empty(), "all that is opened is closed");
    }
}

/// A message as its fields, numbers and bytes.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for place in 0.. {
            let (byte, rest) = bytes.split_first().expect("a whole number");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(inner)
            }
            kind => panic!("a field of kind {kind}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn number(fields: &[(u64, Field<'_>)], wanted: u64) -> Option<u64> {
    fields.iter().find_map(|(field, value)| match value {
        Field::Number(number) if *field == wanted => Some(*number),
        _ => None,
    })
}

fn bytes<'a>(fields: &[(u64, Field<'a>)], wanted: u64) -> Option<&'a [u8]> {
    fields.iter().find_map(|(field, value)| match value {
        Field::Bytes(bytes) if *field == wanted => Some(*bytes),
        _ => None,
    })
}

/// Packets of one sequence: tracks that are described before they are used, slices that begin and end in turn and in the
/// order of time, names that were told. How many there are, and how many of them did not end.
fn slices(file: &[u8]) -> (u32, u64) {
    let mut tracks: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut names = Vec::new();
    let mut slices = 0;
    for (field, packet) in fields(file) {
        let Field::Bytes(packet) = packet else {
            panic!("a trace is of packets");
        };
        assert_eq!(field, 1, "a packet");
        let packet = fields(packet);
        assert_eq!(number(&packet, 10), Some(1), "of the one sequence");
        if let Some(track) = bytes(&packet, 60) {
            let track = fields(track);
            tracks.insert(number(&track, 1).unwrap(), (0, 0));
        }
        if let Some(interned) = bytes(&packet, 12) {
            let name = fields(bytes(&fields(interned), 2).unwrap());
            assert!(std::str::from_utf8(bytes(&name, 2).unwrap()).is_ok());
            names.push(number(&name, 1).unwrap());
        }
        if let Some(event) = bytes(&packet, 11) {
            let event = fields(event);
            let at = number(&packet, 8).expect("an event has a time");
            let of_track = tracks
                .get_mut(&number(&event, 11).unwrap())
                .expect("a track that was described");
            assert!(at >= of_track.1, "in the order of time");
            of_track.1 = at;
            match number(&event, 9) {
                Some(1) => {
                    assert!(names.contains(&number(&event, 10).unwrap()));
                    of_track.0 += 1;
                    slices += 1;
                }
                Some(2) => of_track.0 = of_track.0.checked_sub(1).expect("it began"),
                kind => panic!("an event of kind {kind:?}"),
            }
        }
    }
    (slices, tracks.values().map(|(open, _)| open).sum())
}
