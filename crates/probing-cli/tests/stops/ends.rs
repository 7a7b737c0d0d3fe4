//! How stops end without anybody: deadlines, clients that die, a detach, a fork, the end of the program.

use probing_proto::message::breakpoints::{
    BreakpointEvent, BreakpointLocation, DisconnectPolicy, ResumeReason, SetBreakpoint, Step,
    StopPolicy,
};
use probing_proto::message::{Call, Event};
use probing_testkit::{Python, Target, every_python, wait_until};
use rustix::process::Signal;

use crate::debugger::{Client, Debugged, arm, at, check_at, sandbox, stop};

/// Children of a program whose threads were held.
const FORKS: u32 = 60;

fn because(client: &mut Client) -> ResumeReason {
    client.news(|news| match news {
        BreakpointEvent::WentOn { because, .. } => Some(because),
        _ => None,
    })
}

fn with(hold: StopPolicy) -> SetBreakpoint {
    SetBreakpoint {
        hold,
        ..stop(at("second"))
    }
}

#[test]
fn a_stop_that_times_out_leaves_a_row_and_resumes() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        for hold in [
            StopPolicy {
                idle_millis: 30,
                ..StopPolicy::default()
            },
            StopPolicy {
                total_millis: 30,
                ..StopPolicy::default()
            },
        ] {
            debugged.client.arm(with(hold));
            debugged.begin("print(trainer.fit(10))");
            assert_eq!(because(&mut debugged.client), ResumeReason::Deadline);
            assert_eq!(debugged.ended(), ["63"]);
            debugged.client.disarm_all();
        }
        let pid = debugged.target.pid().to_string();
        let sql = "select kind, text, func, frames from python.captures";
        let rows = debugged
            .sandbox
            .probing(["-t", &pid, "query", "--csv", sql]);
        let rows = rows.stdout;
        assert!(rows.contains("expired,breakpoint 1,"), "{rows}");
        assert!(rows.contains("expired,breakpoint 2,"), "{rows}");
        assert!(rows.contains("total"), "{rows}");
        debugged.leaves_no_trace();
    });
}

#[test]
fn breakpoints_of_a_client_end_with_it() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let mut other = debugged.another();
        other.arm(SetBreakpoint {
            own: true,
            ..stop(at("second"))
        });
        assert_eq!(debugged.client.points().len(), 1);
        drop(other);
        wait_until("it is disarmed", || debugged.client.points().is_empty());
        debugged.begin("print(trainer.fit(10))");
        assert_eq!(debugged.ended(), ["63"]);
        debugged.leaves_no_trace();
    });
}

#[test]
fn code_that_never_ends_does_not_outlive_the_stop() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(with(StopPolicy {
            total_millis: 300,
            ..StopPolicy::default()
        }));
        debugged.begin("print(trainer.fit(10))");
        let stopped = debugged.client.stopped();
        let id = debugged
            .client
            .begin_eval(stopped.stop, 0, "while True: pass");
        let ended = debugged.client.answer(id);
        assert!(matches!(ended, Event::Evaluated(_)), "{ended:?}");
        assert_eq!(debugged.ended(), ["63"]);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

/// A client that stops the program, and dies.
fn abandoned(python: &Python, gone: DisconnectPolicy) -> Debugged {
    let mut debugged = Debugged::start(python);
    debugged.client.arm(with(StopPolicy {
        gone,
        ..StopPolicy::default()
    }));
    debugged.begin("print(trainer.fit(10))");
    let stopped = debugged.client.stopped();
    debugged
        .client
        .begin_eval(stopped.stop, 0, "while True: pass");
    debugged.client = debugged.another();
    debugged
}

#[test]
fn a_program_whose_debugger_died_resumes_if_on_disconnect_says_so() {
    every_python(|python| {
        let mut debugged = abandoned(python, DisconnectPolicy::Resume);
        assert_eq!(debugged.ended(), ["63"]);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_stop_whose_debugger_died_waits_for_another() {
    every_python(|python| {
        let mut debugged = abandoned(python, DisconnectPolicy::Keep);
        let stops = debugged.client.follow(true);
        assert_eq!(stops.len(), 1, "{stops:?}");
        let client = &mut debugged.client;
        assert_eq!(client.value(stops[0].stop, 0, "total"), "20");
        client.step_to(stops[0].stop, Step::Over, "third");
        client.disarm_all();
        client.step(stops[0].stop, Step::Continue);
        assert_eq!(debugged.ended(), ["63"]);
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_detach_lets_everything_go() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(stop(at("second")));
        debugged.client.arm(at("count"));
        debugged.begin("print(trainer.fit(10))");
        check_at(&debugged.client.stopped(), "second");
        debugged.client.ask(Call::Detach);
        assert_eq!(debugged.ended(), ["63"]);
        let traces = "while any(sys.monitoring.get_tool(t) for t in range(6)) if hasattr(sys, 'monitoring') else \
                      any(hasattr(it, '__self__') for f in (Trainer.fit, count) for it in f.__code__.co_consts): pass";
        debugged.begin(traces);
        debugged.ended();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_child_of_a_fork_stops_nowhere() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(stop(at("second")));
        let code = "import os, warnings; warnings.simplefilter('ignore'); pid = os.fork(); pid or (trainer.fit(1), os._exit(0)); print(os.waitpid(pid, 0)[1])";
        debugged.begin(code);
        assert_eq!(debugged.ended(), ["0"]);
        let code = "worker = in_thread(trainer.fit, 1)";
        debugged.begin(code);
        debugged.ended();
        let stopped = debugged.client.stopped();
        // While a thread is stopped, too.
        let code = "pid = os.fork(); pid or (consume(), os._exit(0)); print(os.waitpid(pid, 0)[1])";
        debugged.begin(code);
        assert_eq!(debugged.ended(), ["0"]);
        debugged.client.disarm_all();
        debugged.client.step(stopped.stop, Step::Continue);
        debugged.begin("worker.join()");
        debugged.ended();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_ctrl_c_in_the_program_ends_a_stop_and_other_signals_wait() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(stop(at("second")));
        let caught =
            "exec('try:\\n    trainer.fit(1)\\nexcept KeyboardInterrupt:\\n    print(\"caught\")')";
        debugged.begin(caught);
        debugged.client.stopped();
        debugged.target.signal(Signal::INT);
        assert_eq!(because(&mut debugged.client), ResumeReason::Interrupted);
        assert_eq!(debugged.ended(), ["caught"]);
        // One that comes while the driver's code runs is the program's all the same.
        debugged.begin(caught);
        let stopped = debugged.client.stopped();
        let id = debugged.client.begin_eval(
            stopped.stop,
            0,
            "print('begun', flush=True)\nwhile True: pass",
        );
        debugged.client.printed(id);
        debugged.target.signal(Signal::INT);
        assert_eq!(because(&mut debugged.client), ResumeReason::Interrupted);
        assert_eq!(debugged.ended(), ["caught"]);
        debugged.begin(
            "import signal; signal.signal(signal.SIGTERM, lambda *_: print('term', flush=True))",
        );
        debugged.ended();
        debugged.begin("print(trainer.fit(1))");
        let stopped = debugged.client.stopped();
        debugged.target.signal(Signal::TERM);
        debugged.client.step(stopped.stop, Step::Continue);
        assert_eq!(debugged.ended(), ["term", "9"]);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn the_end_of_the_program_does_not_wait_for_a_stopped_daemon() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(stop(at("second")));
        debugged.begin("threading.Thread(target=trainer.fit, args=(1,), daemon=True).start()");
        debugged.ended();
        debugged.client.stopped();
        let ended = debugged.target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    });
}

/// Threads that wait at a line each, and the main thread, which forks right after a line that it stops at.
const FORKING: &str = "import os, time, warnings; warnings.simplefilter('ignore'); goes_on = True; \
    exec(compile('def tick():\\n    while goes_on:\\n        time.sleep(0.0005)\\n\
    def forks():\\n    child = 1\\n    child = os.fork()\\n    child or os._exit(0)\\n    return child\\n\
    def waited(child):\\n    until = time.monotonic() + 20\\n    while time.monotonic() < until:\\n        if os.waitpid(child, os.WNOHANG)[0]: return True\\n        time.sleep(0.001)\\n    os.kill(child, 9)\\n    return False', 'forking.py', 'exec'), globals()); \
    tickers = [in_thread(tick) for _ in range(40)]";

#[test]
fn a_child_that_is_forked_while_held_threads_wake_up_does_not_hang() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin(FORKING);
        debugged.ended();
        let hold = StopPolicy {
            all_threads: true,
            ..StopPolicy::default()
        };
        debugged.client.arm(SetBreakpoint {
            hold,
            ..stop(arm(BreakpointLocation::Line {
                file: "forking.py".to_owned(),
                line: 5,
            }))
        });
        for _ in 0..FORKS {
            debugged.begin("print(waited(forks()))");
            let stopped = debugged.client.stopped();
            // They come to their lines.
            debugged.client.value(stopped.stop, 0, "time.sleep(0.005)");
            debugged.client.step(stopped.stop, Step::Continue);
            assert_eq!(debugged.ended(), ["True"]);
        }
        debugged.client.disarm_all();
        debugged.begin("goes_on = False; [ticker.join() for ticker in tickers]");
        debugged.ended();
        debugged.leaves_no_trace();
    });
}

/// How long the probe takes to leave at the end of a program, in seconds, after code that was to run at a stop was refused.
fn leaving_after_refusals(python: &Python) -> f64 {
    let mut debugged = Debugged::start(python);
    debugged.client.arm(stop(at("second")));
    debugged.begin("print(trainer.fit(1))");
    let stopped = debugged.client.stopped();
    let endless = "print('begun', flush=True)\nwhile True: pass";
    let runs = debugged.client.begin_eval(stopped.stop, 0, endless);
    debugged.client.printed(runs);
    let waits = debugged.client.begin_eval(stopped.stop, 0, "1");
    debugged.client.ask(Call::Release { stops: Vec::new() });
    let refused = debugged.client.answer(waits);
    assert!(matches!(refused, Event::Failed(_)), "{refused:?}");
    assert_eq!(debugged.ended(), ["9"]);
    debugged.client.disarm_all();
    // What is called at its end, the probe's part among it.
    debugged.told(
        "(atexit := __import__('atexit'), now := __import__('time').monotonic, began := now(), atexit._run_exitfuncs(), now() - began)[-1]",
    )
    .parse()
    .unwrap()
}

#[test]
fn the_end_of_the_program_does_not_wait_for_code_that_was_refused() {
    every_python(|python| {
        // The probe waits for 0.2 s if there is something to wait for, however fast the machine.
        let fastest = (0..5).map(|_| leaving_after_refusals(python));
        let fastest = fastest.fold(f64::INFINITY, f64::min);
        assert!(fastest < 0.2, "{fastest}");
    });
}

/// A program that ends with three exit functions, of which the probe came after the first.
fn ending(python: &Python) -> Debugged {
    let sandbox = sandbox();
    let mut target = sandbox.target(python, "debugged.py").start();
    let registered = |target: &mut Target, batch: u32| {
        let function = format!("lambda: print('exit', trainer.fit({batch}), flush=True)");
        target.say(&format!("__import__('atexit').register({function})"));
        assert_eq!(target.line(), "done");
    };
    registered(&mut target, 1);
    let pid = target.pid().to_string();
    assert_eq!(sandbox.probing(["-t", &pid, "attach"]).status, 0);
    registered(&mut target, 2);
    registered(&mut target, 3);
    let mut client = Client::new(&sandbox, &target);
    client.follow(true);
    Debugged {
        sandbox,
        target,
        client,
    }
}

#[test]
fn breakpoints_are_met_in_exit_functions_that_were_registered_before_the_probe_came() {
    every_python(|python| {
        let mut debugged = ending(python);
        debugged.client.arm(stop(at("second")));
        debugged.begin("raise SystemExit(7)");
        for batch in [3, 2, 1] {
            let stopped = debugged.client.stopped();
            check_at(&stopped, "second");
            let value = debugged.client.value(stopped.stop, 0, "batch");
            assert_eq!(value, batch.to_string());
            debugged.client.step(stopped.stop, Step::Continue);
            // Each once, in their order.
            let sum = 3 * (2 * batch + 1);
            assert_eq!(debugged.target.line(), format!("exit {sum}"));
        }
        let ended = debugged.target.wait();
        assert_eq!((ended.status, ended.stderr), (7, Vec::new()));
    });
}

#[test]
fn exit_functions_that_fail_or_add_others_do_as_they_do_without_breakpoints() {
    every_python(|python| {
        let ends = |is_debugged: bool| {
            let mut debugged = ending(python);
            let late = "__import__('atexit').register(lambda: print('late', flush=True))";
            let fails = "__import__('atexit').register(breaks, 'at exit')";
            debugged.told(&format!("[{late}, {fails}] and None"));
            debugged.told(&format!(
                "__import__('atexit').register(lambda: {late}) and None"
            ));
            if is_debugged {
                debugged.client.arm(at("second"));
            }
            debugged.begin("raise SystemExit(7)");
            let ended = debugged.target.wait();
            let told = ended.stderr.into_iter();
            // Addresses of lambdas differ.
            let told: Vec<String> = told.filter(|line| !line.contains(" at 0x")).collect();
            (ended.status, ended.stdout, told)
        };
        assert_eq!(ends(true), ends(false));
    });
}
