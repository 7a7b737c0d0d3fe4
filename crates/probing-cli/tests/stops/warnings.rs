//! Python warnings of expressions: reported to the client, never written by the program.

use probing_proto::message::breakpoints::BreakpointEvent;
use probing_testkit::every_python;

use crate::debugger::{Debugged, at, in_function, log, when};

const WARNS: &str = "exec('import warnings\\ndef warns():\\n    warnings.warn(\"from a library\", RuntimeWarning)\\n    return 1')";

#[test]
fn a_warning_of_an_expression_is_reported_and_the_program_shows_its_own() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin(WARNS);
        debugged.ended();
        let point = debugged
            .client
            .arm(log(at("second"), "{warns()} {total is 6}"));
        let note = point.note.unwrap_or_default();
        assert!(note.starts_with("warned: SyntaxWarning: "), "{note}");
        debugged
            .client
            .arm(when("warns() == 1", in_function("Trainer.finish")));
        for expected in ["1 True <warned SyntaxWarning: \"is\" with", "1 True"] {
            debugged.begin("print(trainer.fit(3))");
            let text = debugged.client.news(|news| match news {
                BreakpointEvent::Logged { text, .. } => Some(text),
                _ => None,
            });
            assert!(text.starts_with(expected), "{text}");
            let warned = " <warned RuntimeWarning: from a library>";
            assert_eq!(text.ends_with(warned), text != "1 True", "{text}");
            assert_eq!(debugged.ended(), ["21"]);
        }
        for point in debugged.client.disarm_all() {
            let note = point.note.unwrap_or_default();
            let expected = "RuntimeWarning: from a library";
            assert!(note.contains(expected), "{note}");
        }
        assert_eq!(
            debugged.told("warnings._showwarnmsg.__module__ in ('warnings', '_py_warnings'), len(__warningregistry__) < 2"),
            "True True"
        );
        // What the program does by itself it shows, once, as ever.
        debugged.begin("warns(); warns()");
        debugged.ended();
        let ended = debugged.target.end();
        let shown = ended
            .stderr
            .iter()
            .filter(|line| line.contains("RuntimeWarning: from a library"));
        assert_eq!((ended.status, shown.count()), (0, 1), "{:?}", ended.stderr);
    });
}

#[test]
fn a_warning_of_another_thread_is_shown_while_an_expression_is_evaluated() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin(WARNS);
        debugged.ended();
        let meanwhile = "{warns()} {in_thread(warns).join()}";
        debugged.client.arm(log(at("second"), meanwhile));
        debugged.begin("print(trainer.fit(3))");
        assert_eq!(debugged.ended(), ["21"]);
        debugged.client.disarm_all();
        let ended = debugged.target.end();
        let shown = ended
            .stderr
            .iter()
            .filter(|line| line.contains("RuntimeWarning: from a library"));
        assert_eq!((ended.status, shown.count()), (0, 1), "{:?}", ended.stderr);
    });
}
