//! Exceptions of evaluated code reach its client, those of signal handlers reach the program.

use probing_proto::message::{Call, Eval, Event, Outcome};
use probing_testkit::every_python;
use rustix::process::Signal;

use crate::debugger::{Client, Debugged, at, in_function, log, stop, when};

const SIGNALLED: &str = "signalled.py";
/// Python's own function, with the frame that calls it among its variables, as a handler has.
const RAISES: &str = "__import__('inspect').getsource(__import__('inspect').currentframe())";

fn in_main(code: &str) -> Call {
    Call::Eval(Eval {
        thread: Some("main".to_owned()),
        ..Eval::of(code)
    })
}

/// The class of what code raised.
#[track_caller]
fn raised(event: Event) -> String {
    let Event::Evaluated(evaluated) = event else {
        panic!("{event:?}");
    };
    let Outcome::Raised(raised) = evaluated.outcome else {
        panic!("{evaluated:?}");
    };
    raised.exception
}

#[track_caller]
fn run(client: &mut Client, code: &str) {
    let event = client.ask(in_main(code));
    let is_finished = |event: &Event| match event {
        Event::Evaluated(evaluated) => matches!(evaluated.outcome, Outcome::Finished { .. }),
        _ => false,
    };
    assert!(is_finished(&event), "{code}: {event:?}");
}

#[test]
fn what_evaluated_code_raises_is_not_raised_in_the_program() {
    every_python(|python| {
        let mut debugged = Debugged::start_program(python, SIGNALLED);
        run(&mut debugged.client, "signal.signal(signal.SIGINT, count)");
        let codes = [
            (RAISES, "OSError"),
            (
                "def f(number, frame):\n    raise KeyError(number)\nf(15, __import__('sys')._getframe())",
                "KeyError",
            ),
            (
                "def f(*frames):\n    raise KeyError\nf(__import__('sys')._getframe())",
                "KeyError",
            ),
            // A handler that the client itself calls.
            ("count_and_raise(15, None)", "Raised"),
            (
                "(_ for _ in ()).throw(KeyboardInterrupt)",
                "KeyboardInterrupt",
            ),
        ];
        for (code, exception) in codes {
            assert_eq!(
                raised(debugged.client.ask(in_main(code))),
                exception,
                "{code}"
            );
        }
        // The handler that was called has counted, and nothing was raised where it would be counted, too.
        assert_eq!(debugged.target.line(), "1 0");
        debugged.target.say("pass");
        assert_eq!(debugged.target.line(), "done");
        let ended = debugged.target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    });
}

#[test]
fn what_a_condition_raises_is_not_raised_in_the_program() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        for arm in [
            when(RAISES, at("second")),
            when(RAISES, in_function("Trainer.fit")),
        ] {
            debugged.client.arm(arm);
            debugged.begin("print(trainer.fit(1))");
            assert_eq!(debugged.ended(), ["9"]);
            let note = debugged.client.disarm_all().remove(0).note;
            let note = note.unwrap_or_default();
            assert!(note.contains("raised OSError"), "{note}");
        }
        debugged
            .client
            .arm(log(at("second"), &format!("{{{RAISES}}}")));
        debugged.begin("print(trainer.fit(1))");
        assert_eq!(debugged.ended(), ["9"]);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn what_code_at_a_stop_raises_is_not_raised_in_the_program() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(stop(at("second")));
        debugged.begin("print(trainer.fit(1))");
        let stopped = debugged.client.stopped();
        for frame in [0, 1] {
            let outcome = debugged.client.evaluated(stopped.stop, frame, RAISES);
            assert!(matches!(outcome, Outcome::Raised(_)), "{outcome:?}");
        }
        // It still stands.
        assert_eq!(debugged.client.value(stopped.stop, 0, "total"), "2");
        debugged.client.disarm_all();
        debugged.client.ask(Call::Release { stops: Vec::new() });
        assert_eq!(debugged.ended(), ["9"]);
        debugged.leaves_no_trace();
    });
}

/// Ways to have SIGTERM handled by something that counts and raises.
const HANDLERS: [(&str, &str); 7] = [
    ("a function", "count_and_raise"),
    ("a lambda", "lambda *rest: count_and_raise(*rest)"),
    (
        "a method",
        "type('Held', (), {'on': lambda self, n, f: count_and_raise(n, f)})().on",
    ),
    (
        "a partial",
        "__import__('functools').partial(lambda word, n, f: count_and_raise(n, f), 'word')",
    ),
    (
        "a callable object",
        "type('Held', (), {'__call__': lambda self, n, f: count_and_raise(n, f)})()",
    ),
    (
        "one that sets another",
        "lambda n, f: (signal.signal(n, signal.SIG_DFL), count_and_raise(n, f))",
    ),
    (
        "one that forgets what it was called with",
        "type(count)(compile('def it(n, f):\\n n = str(n)\\n count_and_raise(n, None)', '', 'exec').co_consts[0], globals())",
    ),
];

#[test]
fn what_any_handler_raises_in_evaluated_code_is_the_programs() {
    every_python(|python| {
        let mut debugged = Debugged::start_program(python, SIGNALLED);
        for (count, (kind, handler)) in HANDLERS.into_iter().enumerate() {
            run(
                &mut debugged.client,
                &format!("signal.signal(signal.SIGTERM, {handler})"),
            );
            let id = debugged
                .client
                .send(in_main("print('begun', flush=True)\nwhile True: pass"));
            debugged.client.printed(id);
            debugged.target.signal(Signal::TERM);
            assert_eq!(raised(debugged.client.answer(id)), "Raised", "{kind}");
            let both = format!("{0} {0}", count + 1);
            assert_eq!(debugged.target.line(), both, "{kind}");
        }
        debugged.target.say("pass");
        assert_eq!(debugged.target.line(), "done");
        let ended = debugged.target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    });
}
