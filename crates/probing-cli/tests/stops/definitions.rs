//! Lines that define a function: they mean the function.

use std::fs;

use probing_proto::message::breakpoints::{Breakpoint, BreakpointLocation};
use probing_testkit::every_python;

use crate::debugger::{Debugged, arm};

const MODULE: &str = "\
import functools

@functools.lru_cache(
    maxsize=None,
)
def cached(
    value,
    other=1,
):
    \"\"\"Says what it does.\"\"\"
    return value + other

class Model:
    @property
    def size(self):
        return 3

def one(value): return value

def outer():
    def inner(value):
        return value

    return inner(1) + inner(2)

def call():
    cached.cache_clear()
    return [cached(1), Model().size, one(1), outer()]
";

/// The line asked for, the line that is met and what defines it, and how often two calls come there.
const MET: [(u32, u32, &str, u64); 9] = [
    (3, 11, "cached", 2),
    (4, 11, "cached", 2),
    (6, 11, "cached", 2),
    (8, 11, "cached", 2),
    (10, 11, "cached", 2),
    (14, 16, "Model.size", 2),
    (15, 16, "Model.size", 2),
    (18, 18, "one", 2),
    // A function comes to what it defines at each call.
    (21, 21, "outer", 2),
];

#[track_caller]
fn check(points: &[Breakpoint], lines: &[(u32, u32, &str, u64)]) {
    for (point, (asked, met, function, hits)) in points.iter().zip(lines) {
        let bound: Vec<_> = point
            .bound
            .iter()
            .map(|it| (it.func.as_str(), it.lineno))
            .collect();
        assert_eq!(bound, [(*function, *met)], "{point:?}");
        let note = (asked != met)
            .then(|| format!("line {asked} defines {function}: moved to its first line, {met}"));
        assert_eq!(point.note, note, "{point:?}");
        assert_eq!(point.hits, *hits, "{point:?}");
    }
}

#[test]
fn the_line_of_a_def_or_a_decorator_means_the_function() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let folder = debugged.sandbox.path().join("project");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("defined.py"), MODULE).unwrap();
        debugged.begin(&format!("sys.path.insert(0, {folder:?})"));
        debugged.ended();
        let arm_all = |debugged: &mut Debugged| {
            for (line, ..) in MET {
                let file = "defined.py".to_owned();
                debugged
                    .client
                    .arm(arm(BreakpointLocation::Line { file, line }));
            }
        };
        // Before it is loaded, when the body of the module is there as well; and after.
        arm_all(&mut debugged);
        debugged.begin("import defined");
        debugged.ended();
        for _ in 0..2 {
            assert_eq!(debugged.told("defined.call()"), "[2, 3, 1, 3]");
            assert_eq!(debugged.told("defined.call()"), "[2, 3, 1, 3]");
            check(&debugged.client.disarm_all(), &MET);
            arm_all(&mut debugged);
        }
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

/// The body of the program itself runs on, and has the line, too.
#[test]
fn the_line_of_a_def_of_the_program_means_the_function() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let point = debugged.client.arm(arm(BreakpointLocation::Line {
            file: "debugged.py".to_owned(),
            line: crate::debugger::line("first") - 1,
        }));
        assert_eq!(point.bound.len(), 1, "{point:?}");
        assert_eq!(point.bound[0].func, "Trainer.fit");
        assert_eq!(point.bound[0].lineno, crate::debugger::line("first"));
        debugged.begin("Trainer().fit(1)");
        debugged.ended();
        let told = debugged.client.disarm_all();
        assert_eq!(told[0].hits, 1, "{told:?}");
        debugged.leaves_no_trace();
    });
}

/// Before 3.12 a breakpoint that has found its code does not look for the same file loaded again.
#[test]
fn the_line_of_a_docstring_means_the_function_that_is_loaded_again() {
    every_python(|python| {
        if python.version < (3, 12) {
            return;
        }
        let mut debugged = Debugged::start(python);
        let folder = debugged.sandbox.path();
        fs::write(folder.join("defined.py"), MODULE).unwrap();
        debugged.begin(&format!(
            "sys.path.insert(0, {:?})",
            folder.to_str().unwrap()
        ));
        debugged.ended();
        debugged.begin("import defined, importlib; defined.call()");
        debugged.ended();
        for (line, ..) in MET {
            let file = "defined.py".to_owned();
            debugged
                .client
                .arm(arm(BreakpointLocation::Line { file, line }));
        }
        debugged.begin("defined.call(); importlib.reload(defined).call()");
        debugged.ended();
        for (point, (asked, _, _, hits)) in debugged.client.points().iter().zip(MET) {
            assert_eq!(point.hits, hits, "line {asked}: {point:?}");
        }
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}
