//! Many clients at once: nobody is refused, nothing piles up.
#![expect(clippy::print_stderr, reason = "says what was measured")]

use std::thread;
use std::time::{Duration, Instant};

use probing_testkit::{Python, Usage, wait_until};
use serde_json::json;

use crate::agent::{Agent, Line};
use crate::sandbox;

/// All clients ask in turn for everything, until `enough`; how long each answer took.
fn ask_at_once(
    agent: &Line,
    clients: usize,
    enough: impl Fn(usize) -> bool + Clone + Send + 'static,
) -> Vec<Duration> {
    let asking: Vec<_> = (0..clients)
        .map(|client| {
            let (agent, enough) = (agent.clone(), enough.clone());
            thread::spawn(move || {
                let mut took = Vec::new();
                while !enough(took.len()) {
                    let began = Instant::now();
                    let answer = match (client + took.len()) % 4 {
                        0 => agent.get("/targets"),
                        1 => agent.get("/backtrace"),
                        2 => agent.post("/eval", &json!({"code": "6 * 7"})),
                        _ => agent.post("/query", &json!({"sql": "SELECT pid FROM process.info"})),
                    };
                    assert_eq!(answer.status, 200, "{answer:?}");
                    took.push(began.elapsed());
                }
                took
            })
        })
        .collect();
    asking
        .into_iter()
        .flat_map(|asking| asking.join().unwrap())
        .collect()
}

#[test]
fn many_clients_at_once_are_all_answered() {
    let sandbox = sandbox();
    let python = Python::all().into_iter().next_back().unwrap();
    let target = sandbox.probed(&python, "idle.py");
    let agent = Agent::start(&sandbox);
    let took = ask_at_once(&agent, 40, |asked| asked == 8);
    assert_eq!(took.len(), 320);
    // The target serves 64 connections, and all of them were given back.
    wait_until("the agent has let go of the target", || {
        let files = agent.process.usage().open_files;
        files < 32
    });
    assert_eq!(target.end().status, 0);
}

#[test]
#[ignore = "a minute of load: make stress"]
fn two_hundred_clients_for_a_minute_leave_memory_flat() {
    let sandbox = sandbox();
    let python = Python::all().into_iter().next_back().unwrap();
    let target = sandbox.probed(&python, "idle.py");
    let agent = Agent::start(&sandbox);
    let until = |seconds| {
        let end = Instant::now() + Duration::from_secs(seconds);
        move |_| Instant::now() > end
    };
    ask_at_once(&agent, 200, until(10));
    let before = Usage::of(agent.process.pid());
    let mut took = ask_at_once(&agent, 200, until(60));
    let after = Usage::of(agent.process.pid());
    took.sort_unstable();
    let at = |part: f64| took[(took.len() as f64 * part) as usize].as_secs_f64() * 1e3;
    eprintln!(
        "{} answers in 60 s: median {:.1} ms, 99 % within {:.1} ms; {} MB before, {} MB after",
        took.len(),
        at(0.5),
        at(0.99),
        before.rss_kib >> 10,
        after.rss_kib >> 10
    );
    assert!(
        after.rss_kib < before.rss_kib + (64 << 10),
        "{before:?} {after:?}"
    );
    assert_eq!(target.end().status, 0);
}
