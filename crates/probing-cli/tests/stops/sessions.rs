//! A stopped thread: what it evaluates, who drives it, who hears of it.

use probing_proto::message::breakpoints::{
    BreakpointEvent, Controller, ResumeReason, Step, StopPolicy, StopReason,
};
use probing_proto::message::{Call, Eval, Event, Outcome};
use probing_testkit::every_python;

use crate::debugger::{Debugged, at, check_at, line, stop};

#[test]
fn a_stopped_thread_shows_its_frames_and_takes_assignments() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let point = debugged.client.arm(stop(at("second")));
        debugged.begin("print(trainer.fit(10))");
        let stopped = debugged.client.stopped();
        check_at(&stopped, "second");
        let id = stopped.stop;
        let breakpoint = StopReason::Breakpoint { point: point.point };
        assert_eq!(
            (&stopped.why, stopped.driver),
            (&breakpoint, Controller::You)
        );
        assert_eq!(stopped.thread_name, "MainThread");
        assert_eq!(stopped.thread_id, debugged.target.pid());
        assert!(
            stopped.ends_in_millis > 0 && stopped.frames.len() >= 2,
            "{stopped:?}"
        );
        let client = &mut debugged.client;
        assert_eq!(
            client.value(id, 0, "total, batch, self.lr"),
            "(20, 10, 0.1)"
        );
        assert_eq!(
            client.value(id, 1, "line, loss"),
            "('print(trainer.fit(10))\\n', 0.25)"
        );
        assert_eq!(
            client.value(id, 0, "__import__('threading').current_thread().name"),
            "'MainThread'"
        );
        assert_eq!(
            client.value(id, 0, "[total + each for each in range(2)]"),
            "[20, 21]"
        );
        client.value(id, 0, "total = 500\nextra = 1");
        assert_eq!(client.value(id, 0, "total"), "500");
        let raised = client.evaluated(id, 0, "1 / 0");
        assert!(matches!(raised, Outcome::Raised(_)), "{raised:?}");
        let wrong = client.evaluated(id, 0, "1 +");
        assert!(matches!(wrong, Outcome::SyntaxError { .. }), "{wrong:?}");
        // Another thread of the program goes on meanwhile, and code on a thread of its own is not bothered.
        let other = client.ask(Call::Eval(Eval::of("trainer.lr")));
        assert!(matches!(other, Event::Evaluated(_)), "{other:?}");
        let source = client.ask(Call::Source {
            file: stopped.frames[0].file.clone(),
            first: line("second"),
            count: 1,
        });
        let Event::Source(source) = source else {
            panic!("{source:?}")
        };
        assert_eq!(source.lines, ["        total = total + 1  # @second"]);
        client.disarm_all();
        client.step(id, Step::Continue);
        assert_eq!(debugged.ended(), ["1503"]);
        let because = debugged.client.news(|news| match news {
            BreakpointEvent::WentOn { because, .. } => Some(because),
            _ => None,
        });
        assert_eq!(because, ResumeReason::Asked);
        assert!(debugged.client.stops().is_empty());
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_program_stops_itself_if_a_client_is_there() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin("import probing");
        debugged.ended();
        debugged.begin("print(probing.breakpoint())");
        let stopped = debugged.client.stopped();
        assert_eq!(
            (&stopped.why, stopped.driver),
            (&StopReason::Asked, Controller::You)
        );
        assert_eq!(stopped.frames[0].file, "<string>");
        debugged.client.step(stopped.stop, Step::Continue);
        assert_eq!(debugged.ended(), ["True"]);
        debugged.client = debugged.another();
        // The other one is gone when its connection has been closed, which the probe sees before it answers this.
        debugged.client.stops();
        assert_eq!(debugged.told("probing.breakpoint()"), "False");
        debugged.leaves_no_trace();
    });
}

#[test]
fn code_at_a_stop_is_cancelled_and_meets_no_breakpoints() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(stop(at("second")));
        debugged.begin("trainer.fit(10)");
        let stopped = debugged.client.stopped();
        let id = debugged
            .client
            .begin_eval(stopped.stop, 0, "while True: pass");
        debugged.client.send(Call::Cancel { request: id });
        let Event::Evaluated(ended) = debugged.client.answer(id) else {
            panic!("not an outcome")
        };
        let Outcome::Raised(raised) = ended.outcome else {
            panic!("{ended:?}")
        };
        assert_eq!(raised.exception, "KeyboardInterrupt");
        assert_eq!(
            debugged.client.value(stopped.stop, 0, "trainer.fit(1)"),
            "9"
        );
        let points = debugged.client.disarm_all();
        assert_eq!(points[0].hits, 1);
        debugged.client.step(stopped.stop, Step::Continue);
        debugged.ended();
        debugged.leaves_no_trace();
    });
}

#[test]
fn whoever_takes_a_stop_last_is_told_so_last() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(stop(at("second")));
        debugged.begin("trainer.fit(10)");
        let id = debugged.client.stopped().stop;
        let mut takers: Vec<_> = (0..3)
            .map(|_| {
                let mut taker = debugged.another();
                taker.follow(true);
                taker
            })
            .collect();
        for _ in 0..20 {
            // All at once: nobody waits for the answer of another.
            let sent: Vec<_> = takers
                .iter_mut()
                .map(|taker| {
                    taker.send(Call::Drive {
                        stop: id,
                        take: true,
                    })
                })
                .collect();
            for (taker, sent) in takers.iter_mut().zip(sent) {
                assert_eq!(taker.answer(sent), Event::Done);
            }
            let truth: Vec<Controller> = takers
                .iter_mut()
                .map(|taker| taker.stops()[0].driver)
                .collect();
            let drivers = truth.iter().filter(|driver| **driver == Controller::You);
            assert_eq!(drivers.count(), 1, "{truth:?}");
            for (taker, truth) in takers.iter_mut().zip(truth) {
                // The last that each has been told is what is so.
                let mut told = taker.all_news().into_iter().filter_map(|news| match news {
                    BreakpointEvent::Driven { driver, .. } => Some(driver),
                    _ => None,
                });
                if let Some(last) = told.next_back() {
                    assert_eq!(last, truth);
                }
            }
        }
        drop(takers);
        let take = Call::Drive {
            stop: id,
            take: true,
        };
        assert_eq!(debugged.client.ask(take), Event::Done);
        debugged.client.step(id, Step::Continue);
        debugged.ended();
    });
}

#[test]
fn several_clients_observe_and_one_controls() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let mut other = debugged.another();
        other.follow(false);
        debugged.client.arm(stop(at("second")));
        debugged.begin("trainer.fit(10)");
        let stopped = debugged.client.stopped();
        let seen = other.stopped();
        assert_eq!(
            (seen.stop, seen.driver),
            (stopped.stop, Controller::Another)
        );
        assert_eq!(seen.followers, 2);
        let step = |stop| {
            Call::Step(probing_proto::message::breakpoints::StepCall {
                stop,
                step: Step::Over,
                my_code: false,
            })
        };
        let refused = other.refused(step(stopped.stop));
        assert_eq!(
            refused,
            format!("another client controls stop {}", stopped.stop.0)
        );
        let drive = |take| Call::Drive {
            stop: stopped.stop,
            take,
        };
        other.refused(drive(false));
        assert_eq!(other.ask(drive(true)), Event::Done);
        let driver = debugged.client.news(|news| match news {
            BreakpointEvent::Driven { driver, .. } => Some(driver),
            _ => None,
        });
        assert_eq!(driver, Controller::Another);
        other.step_to(stopped.stop, Step::Over, "third");
        check_at(&debugged.client.stopped(), "third");
        let released = debugged.client.ask(Call::Release { stops: Vec::new() });
        assert!(matches!(released, Event::Stops { stops } if stops.len() == 1));
        debugged.ended();
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn other_threads_wait_at_their_next_line_if_asked_to() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin("goes_on = True; ticks = 0");
        debugged.ended();
        debugged.begin("exec(compile('def tick():\\n    global ticks\\n    while goes_on:\\n        ticks += 1\\n', '<tick>', 'exec'), globals()); ticker = in_thread(tick)");
        debugged.ended();
        let hold = StopPolicy {
            all_threads: true,
            ..StopPolicy::default()
        };
        debugged
            .client
            .arm(probing_proto::message::breakpoints::SetBreakpoint {
                hold,
                ..stop(at("second"))
            });
        debugged.begin("trainer.fit(10)");
        let stopped = debugged.client.stopped();
        // It may be in the middle of a line; at the second look it stands.
        let stands = "import time\nbefore = -1\nwhile before != ticks:\n    before = ticks\n    time.sleep(0.02)";
        debugged.client.value(stopped.stop, 1, stands);
        let waits = "before = ticks\ntime.sleep(0.02)\nbefore == ticks";
        assert_eq!(debugged.client.value(stopped.stop, 1, waits), "True");
        debugged.client.disarm_all();
        debugged.client.step(stopped.stop, Step::Continue);
        debugged.ended();
        debugged.begin("[None for _ in iter(lambda: ticks == before, False)]");
        debugged.ended();
        debugged.begin("goes_on = False; ticker.join()");
        debugged.ended();
        debugged.leaves_no_trace();
    });
}
