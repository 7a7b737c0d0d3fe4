//! Native frames among Python's: in their true order, named, of threads that are not disturbed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{io, thread};

use probing_process::access::source::{ExternalProcess, Files, Kernel, Source};
use probing_process::elf::Bytes;
use probing_process::error::ProcessError;
use probing_process::memory::{Memory, Range};
use probing_process::procfs::maps::Mapping;
use probing_proto::process::Pid;
use probing_stacks::{
    Frame, FrameGap, FrameKind, Gil, Options, Reader, Snapshot, State, ThreadStack,
};
use probing_testkit::{Python, Sandbox, Target, every_python, root, wait_until};

use crate::target::line_of;

const READINGS: usize = 30;

/// A library made of `native.c`, and the folder that it is in.
struct Library {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Library {
    fn compile(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnative.so");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-fno-optimize-sibling-calls"])
            .args(arguments)
            .arg("-o")
            .arg(&path)
            .arg(root().join("tests/targets/stacks/native.c"))
            .status();
        assert!(status.unwrap().success());
        Self {
            path,
            _folder: folder,
        }
    }

    fn debug_file(&self) -> PathBuf {
        self.path.with_extension("so.debug")
    }

    /// Puts it into a file beside it; false where there is no tool for it.
    fn without_debug_information(&self) -> bool {
        let file = self.debug_file();
        let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
        link.push(&file);
        let steps = [
            vec![
                "--only-keep-debug".as_ref(),
                self.path.as_os_str(),
                file.as_os_str(),
            ],
            vec!["--strip-debug".as_ref(), self.path.as_os_str()],
            vec![link.as_os_str(), self.path.as_os_str()],
        ];
        let done = |step: &Vec<&std::ffi::OsStr>| {
            let status = Command::new("objcopy").args(step).status();
            status.is_ok_and(|status| status.success())
        };
        steps.iter().all(done)
    }

    fn target(&self, python: &Python, arguments: &[&str]) -> Target {
        let target = Sandbox::new("none").target(python, "stacks/native.py");
        let target = arguments
            .iter()
            .fold(target.arg(&self.path), |target, argument| {
                target.arg(argument)
            });
        target.start()
    }
}

fn options() -> Options {
    Options {
        native: true,
        ..Options::default()
    }
}

fn read(target: &Target) -> Snapshot {
    probing_stacks::read(Pid(target.pid()), &options()).unwrap()
}

fn thread<'a>(snapshot: &'a Snapshot, name: &str) -> &'a ThreadStack {
    let mut threads = snapshot.threads.iter();
    let found = threads.find(|thread| thread.name.as_deref() == Some(name));
    found.unwrap_or_else(|| panic!("no {name}: {snapshot:?}"))
}

/// Python's frames as `name:line`, native ones as their names in brackets.
fn shown(thread: &ThreadStack) -> Vec<String> {
    let frame = |frame: &probing_stacks::Frame| match frame.kind {
        FrameKind::Python => format!("{}:{}", frame.func, frame.line.unwrap_or(0)),
        FrameKind::Native { .. } => format!("[{}]", frame.func),
    };
    thread.frames.iter().map(frame).collect()
}

/// Waits until all threads but one that spins sleep.
fn settled(target: &Target) -> Snapshot {
    wait_until("all threads sleep", || {
        let snapshot = read(target);
        let rests = |thread: &ThreadStack| {
            let sleeps = thread.state != State::Running && thread.gil == Gil::Free;
            sleeps || thread.name.as_deref() == Some("spin")
        };
        snapshot.threads.len() >= 7 && snapshot.threads.iter().all(rests)
    });
    read(target)
}

fn place(func: &str, mark: &str) -> String {
    format!("{func}:{}", line_of("native.py", mark))
}

/// Native functions, from the inside up to the first Python frame. Those of a stripped file have no name.
fn inner(thread: &ThreadStack) -> Vec<String> {
    let natives = shown(thread)
        .into_iter()
        .take_while(|frame| frame.starts_with('['));
    natives.filter(|frame| !frame.starts_with("[0x")).collect()
}

/// C and Python in turns, three times.
fn check_alternations(snapshot: &Snapshot) {
    let thread = thread(snapshot, "alternations");
    let (waits, calls) = (place("descend", "waits"), place("descend", "calls"));
    let first = place("alternations", "first");
    let (call, alternate) = ("[outer::Inner::call]", "[alternate]");
    let expected = [
        ["[read]", "[outer::wait]", "[wait_here]"],
        [&waits, call, alternate],
        [&calls, call, alternate],
        [&calls, call, alternate],
    ];
    let mut expected = expected.concat();
    expected.push(&first);
    let ours = |frame: &String| expected.contains(&&**frame);
    let found: Vec<String> = shown(thread).into_iter().filter(ours).collect();
    assert_eq!(found, expected);
    assert_eq!(thread.missing, FrameGap::Nothing);
}

#[test]
fn c_and_python_in_turns_are_seen_in_their_true_order() {
    let plain = Library::compile(&[]);
    let pointers = Library::compile(&["-fno-omit-frame-pointer"]);
    every_python(|python| {
        for library in [&plain, &pointers] {
            let target = library.target(python, &[]);
            check_alternations(&settled(&target));
            assert_eq!(target.end().status, 0);
        }
    });
}

/// Functions by name, as far as the files of this Python and this system name them.
fn check_chains(snapshot: &Snapshot, python: &Python) {
    let sleep = match python.version {
        (3, 10) => "[select]",
        _ => "[clock_nanosleep]",
    };
    assert_eq!(inner(thread(snapshot, "sleep"))[0], sleep);
    assert_eq!(inner(thread(snapshot, "wait_in_epoll"))[0], "[epoll_wait]");
    let sort = shown(thread(snapshot, "sort"));
    let position = |wanted: &str| {
        let found = sort.iter().position(|frame| frame == wanted);
        found.unwrap_or_else(|| panic!("no {wanted}: {sort:#?}"))
    };
    let qsort = position("[qsort_r]");
    assert_eq!(
        position(sleep),
        sort.iter()
            .position(|frame| !frame.starts_with("[0x"))
            .unwrap()
    );
    assert!(position(&place("compare", "compares")) < qsort, "{sort:#?}");
    assert!(qsort < position("[ffi_call]"), "{sort:#?}");
    assert!(
        position("[ffi_call]") < position(&place("sort", "sorts")),
        "{sort:#?}"
    );
    let nest = inner(thread(snapshot, "nest"));
    assert_eq!(nest[..3], ["[read]", "[outer::wait]", "[wait_here]"]);
    let lock = thread(snapshot, "lock");
    assert_eq!(
        lock.frames
            .iter()
            .find(|frame| frame.kind == FrameKind::Python)
            .unwrap()
            .line,
        Some(line_of("native.py", "locks"))
    );
    assert_ne!(lock.frames[0].kind, FrameKind::Python);
}

/// Left out native frames, the stacks are those that are read without them.
fn check_python(target: &Target, snapshot: &Snapshot) {
    let plain = crate::target::read(target.pid());
    for expected in &plain.threads {
        let mut threads = snapshot.threads.iter();
        let thread = threads.find(|thread| thread.tid == expected.tid).unwrap();
        let python = thread
            .frames
            .iter()
            .filter(|frame| frame.kind == FrameKind::Python);
        let python: Vec<_> = python.cloned().collect();
        assert_eq!(python, expected.frames);
        assert_eq!(thread.missing, FrameGap::Nothing, "{:#?}", shown(thread));
    }
}

#[test]
fn what_python_called_in_c_is_named() {
    let library = Library::compile(&[]);
    every_python(|python| {
        let target = library.target(python, &[]);
        let snapshot = settled(&target);
        check_chains(&snapshot, python);
        check_python(&target, &snapshot);
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn threads_that_sleep_are_not_held() {
    every_python(|python| {
        let target = crate::target::start(python, "deadlock.py");
        let mut paused = Duration::MAX;
        wait_until("all of them sleep", || {
            let snapshot = read(&target);
            paused = snapshot.paused;
            let whole = |thread: &ThreadStack| {
                thread.missing == FrameGap::Nothing && thread.frames[0].kind != FrameKind::Python
            };
            snapshot.threads.len() == 3
                && snapshot.threads.iter().all(whole)
                && paused == Duration::ZERO
        });
        assert_eq!(read(&target).paused, Duration::ZERO);
    });
}

/// A process whose memory takes long to be read while one of its threads is held: we lose the CPU.
#[derive(Debug)]
struct SlowWhileHeld(ExternalProcess);

impl SlowWhileHeld {
    /// Longer than a thread is held.
    const DELAY: Duration = Duration::from_millis(10);
}

impl Memory for SlowWhileHeld {
    fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>> {
        let answers = self.0.read_many(ranges);
        let status = self.text("status").unwrap();
        if !status.contains("TracerPid:\t0\n") {
            thread::sleep(Self::DELAY);
        }
        answers
    }
}

impl Kernel for SlowWhileHeld {
    fn pid(&self) -> Pid {
        self.0.pid()
    }

    fn read_file(&self, name: &str) -> io::Result<Vec<u8>> {
        self.0.read_file(name)
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        self.0.names(folder)
    }
}

impl Files for SlowWhileHeld {
    fn contents(&self, mapping: &Mapping) -> Option<Box<dyn Bytes>> {
        self.0.contents(mapping)
    }

    fn program(&self) -> Option<PathBuf> {
        self.0.program()
    }
}

impl Source for SlowWhileHeld {
    fn may_hold(&self) -> bool {
        true
    }

    fn explain(&self, what: &'static str, source: io::Error) -> ProcessError {
        self.0.explain(what, source)
    }
}

#[test]
fn a_thread_that_cannot_be_copied_in_time_is_let_go_each_time_and_counted() {
    every_python(|python| {
        let target = crate::target::start(python, "calls.py");
        let outside = ExternalProcess::open(Pid(target.pid())).unwrap();
        let mut reader = Reader::of(Box::new(SlowWhileHeld(outside))).unwrap();
        let options = Options {
            native: true,
            ..Options::default()
        };
        let snapshot = reader.read(&options).unwrap();
        assert_eq!(snapshot.without_native, 1, "{snapshot:?}");
        let main = crate::target::main_of(&snapshot);
        assert_eq!(main.missing, FrameGap::Native, "{main:?}");
        let is_python = |frame: &Frame| frame.kind == FrameKind::Python;
        assert!(main.frames.iter().all(is_python), "{main:?}");
        let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid())).unwrap();
        assert!(status.contains("TracerPid:\t0\n"));
        assert_eq!(target.state(), 'R');
        // As soon as there is a CPU for us it is seen.
        let mut reader = Reader::open(Pid(target.pid())).unwrap();
        wait_until("it is seen", || {
            reader.read(&options).unwrap().without_native == 0
        });
    });
}

#[test]
fn a_static_and_stripped_python_is_followed() {
    let path = Path::new("/usr/bin/python3.11");
    if path.exists() {
        let python = Python {
            path: path.to_owned(),
            version: (3, 11),
        };
        let target = Library::compile(&["-s"]).target(&python, &[]);
        let snapshot = settled(&target);
        check_alternations(&snapshot);
        check_chains(&snapshot, &python);
        check_python(&target, &snapshot);
    }
}

/// Where a function of `native.c` makes the call that stands so in its text.
fn check_source_line(thread: &ThreadStack, func: &str, call: &str) {
    let source = root().join("tests/targets/stacks/native.c");
    let text = std::fs::read_to_string(&source).unwrap();
    let line = text.lines().position(|line| line.contains(call)).unwrap() as u32 + 1;
    let mut frames = thread.frames.iter();
    let frame = frames.find(|frame| &*frame.func == func).unwrap();
    assert_eq!(
        (frame.line, frame.source_file.as_deref()),
        (Some(line), Some(&*source))
    );
    assert!(frame.file.ends_with("libnative.so"), "{frame:?}");
}

#[test]
fn native_code_with_debug_information_is_shown_with_its_line() {
    let check = |library: &Library, python: &Python| {
        let target = library.target(python, &[]);
        let snapshot = settled(&target);
        let nest = thread(&snapshot, "nest");
        check_source_line(nest, "outer::wait", "= read(file, &byte, 1);");
        check_source_line(nest, "wait_here", "= rust_wait(file);");
        check_source_line(
            thread(&snapshot, "alternations"),
            "alternate",
            "= inner_call(",
        );
    };
    let usual = Library::compile(&["-g"]);
    every_python(|python| check(&usual, python));
    let python = Python::all().remove(0);
    check(&Library::compile(&["-gdwarf-4"]), &python);
    // As other compilers leave it: nothing says which unit has which code.
    let plain = Library::compile(&["-g"]);
    let removed = Command::new("objcopy")
        .arg("--remove-section=.debug_aranges")
        .arg(&plain.path)
        .status();
    if removed.is_ok_and(|status| status.success()) {
        check(&plain, &python);
    }
    // As distributions install it: what debuggers need is in a file apart, which the library names.
    let split = Library::compile(&["-g", "-Wl,--build-id"]);
    if split.without_debug_information() {
        check(&split, &python);
        // One that belongs to another library says nothing of this one.
        let other = Library::compile(&["-g", "-fno-omit-frame-pointer", "-Wl,--build-id"]);
        assert!(other.without_debug_information());
        std::fs::copy(split.debug_file(), other.debug_file()).unwrap();
        assert_no_line(&other, &python);
    }
    assert_no_line(&Library::compile(&["-g0"]), &python);
}

#[track_caller]
fn assert_no_line(library: &Library, python: &Python) {
    let bare = library.target(python, &[]);
    let snapshot = settled(&bare);
    let mut frames = thread(&snapshot, "nest").frames.iter();
    let frame = frames.find(|frame| &*frame.func == "wait_here").unwrap();
    assert_eq!((frame.line, &frame.source_file), (None, &None));
}

#[test]
fn a_stopped_process_is_followed_and_left_stopped() {
    let library = Library::compile(&["-fno-omit-frame-pointer"]);
    every_python(|python| {
        let target = library.target(python, &["spin"]);
        settled(&target);
        target.stop();
        wait_until("all threads are stopped", || {
            read(&target)
                .threads
                .iter()
                .all(|thread| thread.state == State::Stopped)
        });
        for _ in 0..20 {
            let snapshot = read(&target);
            check_alternations(&snapshot);
            check_chains(&snapshot, python);
            assert_eq!(target.state(), 'T');
        }
        target.signal(rustix::process::Signal::CONT);
        wait_until("it goes on", || {
            read(&target)
                .threads
                .iter()
                .all(|thread| thread.state != State::Stopped)
        });
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn a_thread_that_runs_is_seen_in_one_moment() {
    let library = Library::compile(&[]);
    every_python(|python| {
        let target = library.target(python, &["spin"]);
        settled(&target);
        let mut reader = Reader::open(Pid(target.pid())).unwrap();
        let mut whole = 0;
        for _ in 0..READINGS {
            let snapshot = reader.read(&options()).unwrap();
            let spin = thread(&snapshot, "spin");
            let python = spin
                .frames
                .iter()
                .filter(|frame| frame.kind == FrameKind::Python);
            let names: Vec<&str> = python
                .map(|frame| frame.func.rsplit('.').next().unwrap())
                .collect();
            let expected = ["spin", "run", "_bootstrap_inner", "_bootstrap"];
            assert_eq!(names, expected, "{:#?}", shown(spin));
            // On a busy machine it may get no CPU to stop on; then it is not seen whole, and that is said.
            whole += usize::from(spin.missing == FrameGap::Nothing);
        }
        assert_ne!(whole, 0);
    });
}

#[test]
fn system_calls_are_not_interrupted_and_threads_unknown_to_python_are_seen() {
    // With frame pointers it takes registers to go on from epoll, for which nobody is disturbed: it is seen in part.
    for library in [&[][..], &["-fno-omit-frame-pointer"]].map(Library::compile) {
        check_sleepers(&library);
    }
}

fn check_sleepers(library: &Library) {
    every_python(|python| {
        let mut target = library.target(python, &["spin", "sleepers"]);
        settled(&target);
        let mut reader = Reader::open(Pid(target.pid())).unwrap();
        let mut seen = HashSet::new();
        for _ in 0..READINGS {
            let snapshot = reader.read(&options()).unwrap();
            let unknown = snapshot.threads.iter().filter(|thread| thread.ident == 0);
            for thread in unknown.filter(|thread| !thread.frames.is_empty()) {
                let frames = shown(thread);
                let ours = frames.iter().filter(|frame| frame.starts_with("[in_"));
                assert_eq!(ours.clone().count(), 1, "{frames:#?}");
                seen.extend(ours.cloned());
            }
        }
        assert_eq!(seen.len(), 3, "{seen:?}");
        target.say("interruptions");
        assert_eq!(target.line(), "0 0 0");
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn code_that_a_compiler_has_made_in_the_process_has_a_name() {
    every_python(|python| {
        let check = |library: Option<&Path>, name: &str| {
            let target = Sandbox::new("none").target(python, "stacks/generated.py");
            let target = match library {
                Some(library) => target.arg(library).start(),
                None => target.start(),
            };
            wait_until("the thread is inside", || {
                let snapshot = read(&target);
                let frames = &thread(&snapshot, "compiled").frames;
                let innermost = frames.first();
                innermost.is_some_and(|frame| {
                    matches!(frame.kind, FrameKind::Native { .. }) && &*frame.func == name
                })
            });
        };
        check(None, "<generated code>");
        let library = Library::compile(&[]);
        let named = library.path.with_file_name("libllvmlite.so");
        std::fs::rename(&library.path, &named).unwrap();
        check(Some(&named), "<numba>");
    });
}
