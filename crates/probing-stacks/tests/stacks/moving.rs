//! Threads that run while they are read: what is shown was true, if not all of it.

use probing_proto::process::Pid;
use probing_stacks::{Frame, FrameGap, Options, Pause, Reader, Snapshot};
use probing_testkit::{Target, every_python};

use crate::target::{line_of, main_of, places, start};

const READINGS: usize = 1000;
/// Of eight threads each.
const READINGS_OF_MANY: usize = 200;

fn read_often(target: &Target, pause: Pause, check: impl Fn(&Snapshot)) {
    read_so_often(READINGS, target, pause, check);
}

fn read_so_often(readings: usize, target: &Target, pause: Pause, check: impl Fn(&Snapshot)) {
    let mut reader = Reader::open(Pid(target.pid())).unwrap();
    let options = Options {
        pause,
        ..Options::default()
    };
    for _ in 0..readings {
        check(&reader.read(&options).unwrap());
    }
}

#[test]
fn a_tight_loop_is_seen_inside_its_function() {
    every_python(|python| {
        let target = start(python, "tight_loop.py");
        let body = line_of("tight_loop.py", "first")..=line_of("tight_loop.py", "last");
        let caller = ("<module>".to_owned(), line_of("tight_loop.py", "here"));
        read_often(&target, Pause::Never, |snapshot| {
            let places = places(&main_of(snapshot).frames);
            // A reading may come before the call.
            let [(func, line), outer] = &places[..] else {
                assert_eq!(places.len(), 1, "{places:?}");
                return;
            };
            assert!(
                func == "spin" && body.contains(line) && *outer == caller,
                "{places:?}"
            );
            assert_eq!(main_of(snapshot).missing, FrameGap::Nothing);
        });
    });
}

/// `loop_a_b` may only be called by `loop_a`, or by itself.
fn is_possible(frames: &[Frame]) -> bool {
    let outermost = frames.last().is_none_or(|frame| &*frame.func == "<module>");
    let called = |pair: &[Frame]| {
        let (func, caller) = (&*pair[0].func, &*pair[1].func);
        let parent = func
            .rsplit_once('_')
            .map_or("<module>", |(parent, _)| parent);
        caller == parent || (caller == "loop_f" && func == "loop_f")
    };
    outermost && frames.windows(2).all(called)
}

#[test]
fn no_stack_is_impossible() {
    every_python(|python| {
        let target = start(python, "calls.py");
        read_often(&target, Pause::Never, |snapshot| {
            let main = main_of(snapshot);
            assert!(is_possible(&main.frames), "{main:?}");
        });
    });
}

/// In a thread of `chains.py`. A comprehension is a function of its own until 3.11, which nobody needs to see.
fn is_possible_chain(number: usize, frames: &[Frame]) -> bool {
    let file = format!("chain{number}.py");
    let is_own = |frame: &&Frame| frame.file.as_os_str() == file.as_str();
    let calls: Vec<&str> = frames
        .iter()
        .take_while(is_own)
        .map(|frame| &*frame.func)
        .filter(|func| !func.ends_with("<listcomp>"))
        .collect();
    // What called them is only what started the thread.
    let is_strange = |frame: &Frame| frame.file.to_string_lossy().starts_with("chain");
    let is_alone = !frames.iter().skip_while(is_own).any(is_strange);
    let called =
        |pair: &[&str]| pair[0].rsplit_once('_').map(|(parent, _)| parent) == Some(pair[1]);
    let outermost = calls
        .last()
        .is_none_or(|last| *last == format!("c{number}"));
    is_alone && outermost && calls.windows(2).all(called)
}

#[test]
fn no_stack_of_many_threads_that_move_is_impossible() {
    every_python(|python| {
        let target = start(python, "chains.py");
        read_so_often(READINGS_OF_MANY, &target, Pause::Never, |snapshot| {
            let chains = snapshot.threads.iter().filter_map(|thread| {
                let number = thread.name.as_deref()?.strip_prefix("chain-")?;
                Some((number.parse::<usize>().ok()?, thread))
            });
            let mut seen = 0;
            for (number, thread) in chains {
                assert!(is_possible_chain(number, &thread.frames), "{thread:?}");
                seen += 1;
            }
            assert_eq!(seen, 8, "{snapshot:?}");
        });
    });
}

#[test]
fn a_thread_that_is_held_is_read_whole_and_resumes() {
    every_python(|python| {
        let target = start(python, "calls.py");
        read_often(&target, Pause::Moving, |snapshot| {
            let main = main_of(snapshot);
            assert!(is_possible(&main.frames), "{main:?}");
            assert_eq!(main.missing, FrameGap::Nothing, "{main:?}");
        });
        let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid())).unwrap();
        assert!(status.contains("TracerPid:\t0\n"));
        assert_eq!(target.state(), 'R');
    });
}
