//! Conditions: what is answered natively is what Python would answer; an error disarms the point.

use probing_proto::message::Call;
use probing_proto::message::breakpoints::BreakpointEvent;
use probing_testkit::every_python;

use crate::debugger::{Debugged, at, when};

/// Conditions at `return sum(squares)` with `value = 43`, `squares = [0, 43, 86]` and `self` a Trainer.
const CONDITIONS: [(&str, bool); 36] = [
    ("value == 43", true),
    ("value != 43", false),
    ("value > 42", true),
    ("value >= 44", false),
    ("42 < value", true),
    ("value < 43.5", true),
    ("value == '43'", false),
    ("loss < 1", true),
    ("loss == 0.25", true),
    ("loss > -1e9", true),
    ("len(squares) == 3", true),
    ("len(squares) > 3", false),
    ("value is None", false),
    ("value is not None", true),
    ("self.lr < 0.2", true),
    ("self.lr == .1", true),
    ("self._step == 7", true),
    ("self.step == 7", true),
    ("self.step == 8", false),
    ("not value == 43", false),
    ("value == 43 and loss < 1", true),
    ("value == 1 or loss < 1", true),
    ("value == 1 or (loss < 1 and len(squares) == 3)", true),
    ("value == 1 and nobody == 2", false),
    ("value in squares", true),
    ("0 < value < 50", true),
    ("any(each > 80 for each in squares)", true),
    ("squares[-1] == 86", true),
    ("value % 2", true),
    ("value > 0x20", true),
    ("value > True", true),
    ("trainer is self", true),
    ("__name__ == '__main__'", true),
    ("trainer.lr > 5", false),
    ("sum(squares) > 1000", false),
    ("(lambda: value)() == 43", true),
];

#[test]
fn a_condition_without_an_expression_is_refused() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        for condition in ["", "  ", "#", "# value", "\n"] {
            let refused = debugged
                .client
                .refused(Call::Arm(when(condition, at("sum"))));
            assert_eq!(refused, format!("not an expression: {condition}"));
        }
        assert_eq!(debugged.client.points(), []);
        // An empty tuple is one.
        debugged.client.arm(when("()", at("sum")));
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn conditions_are_what_python_says_they_are() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        for (condition, _) in CONDITIONS {
            debugged.client.arm(when(condition, at("sum")));
        }
        debugged.begin("trainer.fit(21)");
        debugged.ended();
        let points = debugged.client.points();
        for (point, (condition, holds)) in points.iter().zip(CONDITIONS) {
            assert_eq!(point.note, None, "{condition}");
            assert_eq!(point.hits, u64::from(holds), "{condition}");
        }
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_condition_that_fails_deletes_its_breakpoint_and_nothing_else() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let refused = debugged
            .client
            .refused(Call::Arm(when("value ===", at("sum"))));
        assert_eq!(refused, "not an expression: value ===");
        let broken = debugged.client.arm(when("value / 0", at("sum")));
        debugged.client.arm(at("sum"));
        debugged.begin("print(trainer.fit(21))");
        assert_eq!(debugged.ended(), ["129"]);
        let (point, reason) = debugged.client.news(|news| match news {
            BreakpointEvent::Disarmed { point, reason } => Some((point, reason)),
            _ => None,
        });
        assert_eq!(point, broken.point);
        assert_eq!(
            reason,
            "its condition raised ZeroDivisionError: division by zero"
        );
        let points = debugged.client.points();
        assert_eq!((points[0].hits, points[1].hits), (0, 1));
        assert_eq!(points[0].note, Some(format!("deleted: {reason}")));
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}
