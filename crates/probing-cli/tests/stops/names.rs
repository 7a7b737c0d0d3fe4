//! Files by whatever name they have: through links, relative, made up by `exec`, by notebooks.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use probing_proto::message::breakpoints::{Breakpoint, BreakpointLocation, Step};
use probing_proto::message::{Call, Event};
use probing_testkit::{Python, every_python};

use crate::debugger::{Debugged, arm, stop};

const MODEL: &str = "def scale(value):\n    twice = value * 2\n    return twice\n";

fn at(file: &str, line: u32) -> probing_proto::message::breakpoints::SetBreakpoint {
    let file = file.to_owned();
    arm(BreakpointLocation::Line { file, line })
}

/// A program that stands in a folder with `real/MODULE.py`, a link `link` to that folder and a link `MODULE_too.py` to the file.
fn beside_links(python: &Python, module: &str) -> (Debugged, PathBuf) {
    let mut debugged = Debugged::start(python);
    let folder = debugged.sandbox.path().join("project");
    fs::create_dir_all(folder.join("real")).unwrap();
    fs::write(folder.join(format!("real/{module}.py")), MODEL).unwrap();
    symlink("real", folder.join("link")).unwrap();
    let too = folder.join(format!("{module}_too.py"));
    symlink(format!("real/{module}.py"), too).unwrap();
    debugged.begin(&format!(
        "import os, linecache; os.chdir({:?})",
        text(&folder)
    ));
    debugged.ended();
    (debugged, folder)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// All of them are met each time.
#[track_caller]
fn all_are_met(debugged: &mut Debugged, call: &str, times: u64) {
    for _ in 0..times {
        assert_eq!(debugged.told(call), "6");
    }
    let points = debugged.client.points();
    let missed: Vec<&Breakpoint> = points.iter().filter(|it| it.hits != times).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn a_file_is_known_through_links_loaded_or_not() {
    every_python(|python| {
        let (mut debugged, folder) = beside_links(python, "model");
        let names = ["real/model.py", "link/model.py", "model_too.py"];
        let whole = names.map(|name| folder.join(name));
        let arm_all = |debugged: &mut Debugged| {
            for path in &whole {
                debugged.client.arm(at(text(path), 2));
            }
        };
        for loaded in ["real", "link", "."] {
            let module = if loaded == "." { "model_too" } else { "model" };
            // Before it is loaded, then after.
            arm_all(&mut debugged);
            debugged.begin(&format!(
                "sys.path.insert(0, os.path.abspath({loaded:?})); import {module} as loaded"
            ));
            debugged.ended();
            all_are_met(&mut debugged, "loaded.scale(3)", 1);
            debugged.client.disarm_all();
            arm_all(&mut debugged);
            all_are_met(&mut debugged, "loaded.scale(3)", 2);
            debugged.client.disarm_all();
            debugged.begin(&format!("del sys.path[0], sys.modules[{module:?}], loaded"));
            debugged.ended();
        }
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_relative_name_is_as_good_as_the_whole_one() {
    every_python(|python| {
        let (mut debugged, folder) = beside_links(python, "net");
        debugged.begin("sys.path.insert(0, os.path.abspath('real')); import net as loaded");
        debugged.ended();
        // Of the file that was loaded: its end, and what it is where the program stands.
        for name in [
            "net.py",
            "real/net.py",
            "./real/net.py",
            "real/../real/net.py",
            "./link/net.py",
        ] {
            let point = debugged.client.arm(at(name, 2));
            assert_eq!(point.bound.len(), 1, "{point:?}");
        }
        all_are_met(&mut debugged, "loaded.scale(3)", 2);
        debugged.client.disarm_all();
        // Not of every file that ends in the same letters.
        let other = debugged.client.arm(at("et.py", 2));
        assert_eq!(other.bound, []);
        debugged.client.disarm_all();
        // Code whose own name is relative.
        debugged.begin(&format!(
            "del sys.modules['net'], loaded; exec(compile({MODEL:?}, 'real/net.py', 'exec'), globals())"
        ));
        debugged.ended();
        for name in [
            text(&folder.join("real/net.py")),
            "real/net.py",
            "./link/net.py",
        ] {
            debugged.client.arm(at(name, 2));
        }
        all_are_met(&mut debugged, "scale(3)", 2);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn code_that_is_in_no_file_is_met_by_the_name_that_it_has() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let pid = debugged.target.pid();
        let cell = format!("/tmp/ipykernel_{pid}/1234567890.py");
        for (name, file) in [
            ("string", "<string>"),
            ("input", "<ipython-input-3-0123456789ab>"),
            ("stdin", "<stdin>"),
            ("cell", cell.as_str()),
        ] {
            let source = MODEL.replace("scale", name);
            // As notebooks do, so that tracebacks have the text.
            debugged.begin(&format!(
                "import linecache; source = {source:?}; linecache.cache[{file:?}] = (len(source), None, source.splitlines(True), {file:?})"
            ));
            debugged.ended();
            let waits = debugged.client.arm(at(file, 2));
            let is_known = file == "<string>";
            assert!(is_known || waits.bound.is_empty(), "{waits:?}");
            debugged.begin(&format!(
                "exec(compile(source, {file:?}, 'exec'), globals())"
            ));
            debugged.ended();
            all_are_met(&mut debugged, &format!("{name}(3)"), 1);
            debugged.client.disarm_all();
            debugged.client.arm(stop(at(file, 2)));
            debugged.begin(&format!("print({name}(3))"));
            let stopped = debugged.client.stopped();
            assert_eq!(stopped.frames[0].file, file);
            let shown = debugged.client.ask(Call::Source {
                file: file.to_owned(),
                first: 2,
                count: 1,
            });
            let Event::Source(shown) = shown else {
                panic!("{shown:?}")
            };
            assert_eq!(shown.lines, ["    twice = value * 2"]);
            debugged.client.step(stopped.stop, Step::Over);
            assert_eq!(debugged.client.stopped().frames[0].lineno, 3);
            debugged.client.disarm_all();
            debugged.client.step(stopped.stop, Step::Continue);
            assert_eq!(debugged.ended(), ["6"]);
        }
        // A cell that is run again is other code of the same name.
        debugged.client.arm(at(&cell, 2));
        let again = MODEL.replace("scale", "cell");
        debugged.begin(&format!(
            "exec(compile({again:?}, {cell:?}, 'exec'), globals())"
        ));
        debugged.ended();
        if python.version >= (3, 12) {
            all_are_met(&mut debugged, "cell(3)", 1);
        }
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_name_never_means_code_of_the_probe() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        // Names in what looks for code, and runs while it looks.
        for name in ["<lambda>", "_frames", "_look_at_frames", "find"] {
            let function = name.to_owned();
            let point = debugged
                .client
                .arm(arm(BreakpointLocation::Function { function }));
            let ours = point.bound.iter().filter(|spot| spot.file == "<probing>");
            assert_eq!(ours.count(), 0, "{point:?}");
        }
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn code_in_no_file_takes_a_breakpoint_by_its_name_and_one_by_its_line() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let source = MODEL.replace("scale", "made");
        debugged.begin(&format!(
            "exec(compile({source:?}, '<made>', 'exec'), globals())"
        ));
        debugged.ended();
        let function = "made".to_owned();
        let by_name = debugged
            .client
            .arm(arm(BreakpointLocation::Function { function }));
        assert_eq!(by_name.bound.len(), 1, "{by_name:?}");
        debugged.client.arm(at("<made>", 2));
        debugged.client.arm(at("<made>", 3));
        all_are_met(&mut debugged, "made(3)", 2);
        for point in debugged.client.disarm_all() {
            assert_eq!(point.bound.len(), 1, "{point:?}");
        }
        debugged.leaves_no_trace();
    });
}
