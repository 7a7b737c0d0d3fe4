//! Code that does its worst, and code without end: the target lives on, and the next eval answers.

use std::thread;

use probing_proto::message::{Call, Event, Outcome, Request, RequestId};
use probing_testkit::{Python, RawClient, every_python};

use crate::host::{
    all_pythons_at_once, answer, ask, client_of, ended_in_silence, probed, sandbox, value,
    wait_until_idle,
};

/// Many on one Python, fewer on the others.
fn many(python: &Python, most: u64) -> u64 {
    let newest = Python::all().last().map(|python| python.version);
    if newest == Some(python.version) {
        most
    } else {
        most / 10
    }
}

#[test]
fn ten_thousand_evals_leave_memory_flat() {
    all_pythons_at_once(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let mut client = client_of(&sandbox, &target);
        let codes = [
            "loss * 2",
            "print('x' * 100)",
            "train_step(0)",
            "x = (",
            "_ + 1",
        ];
        let mut run = |count: u64| {
            for (id, code) in (0..count).zip(codes.iter().cycle()) {
                ask(&mut client, id, code);
                answer(&mut client, id);
            }
            target.usage().rss_kib
        };
        let warm = run(500);
        let after = run(many(python, 10_000));
        let grown = after.saturating_sub(warm);
        assert!(grown <= 1024, "{grown} KiB more");
        wait_until_idle(target.pid());
        drop(client);
        ended_in_silence(target.end());
    });
}

#[test]
fn fifty_clients_at_once_get_their_own_answers() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        thread::scope(|scope| {
            for number in 0..50 {
                let client = client_of(&sandbox, &target);
                scope.spawn(move || ask_a_few(client, number));
            }
        });
        wait_until_idle(target.pid());
        ended_in_silence(target.end());
    });
}

fn ask_a_few(mut client: RawClient, number: u32) {
    for id in 0..5 {
        ask(
            &mut client,
            id,
            &format!("print('from {number}')\n{number} * 2"),
        );
        let answer = answer(&mut client, id);
        assert_eq!(answer.output, format!("from {number}\n"));
        let Event::Evaluated(evaluated) = answer.end else {
            panic!("{:?}", answer.end);
        };
        let value = Some((number * 2).to_string());
        assert_eq!(evaluated.outcome, Outcome::Finished { value });
    }
}

#[test]
fn a_hundred_endless_loops_are_cancelled_one_by_one() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let mut client = client_of(&sandbox, &target);
        for id in 0..100 {
            ask(&mut client, id, "print('begun')\nwhile True: pass");
            client.receive_until(|message| matches!(message.event, Event::Output { .. }));
            client.send(&Request {
                id: RequestId(1000 + id),
                call: Call::Cancel {
                    request: RequestId(id),
                },
            });
            let answer = answer(&mut client, id);
            let Event::Evaluated(evaluated) = answer.end else {
                panic!("{:?}", answer.end);
            };
            let Outcome::Raised(raised) = evaluated.outcome else {
                panic!("{:?}", evaluated.outcome);
            };
            assert_eq!(raised.exception, "KeyboardInterrupt");
        }
        assert_eq!(value(&mut client, "loss"), "0.25");
        wait_until_idle(target.pid());
        drop(client);
        ended_in_silence(target.end());
    });
}

const WORST: [&str; 16] = [
    "raise SystemExit(3)",
    "raise KeyboardInterrupt",
    "raise MemoryError",
    "x = bytearray(1 << 60)",
    "import os, sys\nif os.fork() == 0: os._exit(0)\nos.wait()[1]",
    "import threading\n[threading.Thread(target=print, args=('',), kwargs={'end': ''}).start() for _ in range(20)]\nNone",
    "print = None",
    "print('gone')",
    "del print\nimport builtins\nkept = builtins.print, builtins.len\ndel builtins.print, builtins.len, builtins.repr",
    "len([])",
    "builtins.print, builtins.len = kept",
    "def deeper(): return deeper()\ndeeper()",
    "class Deep:\n    def __repr__(self): return repr([self])\nDeep()",
    "print('\\ud800\\0\\x1b[2J', flush=True)",
    "'\\udfff\\0'",
    "class Bad(Exception):\n    def __str__(self): raise SystemExit\n    __repr__ = __str__\nraise Bad",
];

#[test]
fn the_next_eval_answers_whatever_the_last_one_did() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let mut client = client_of(&sandbox, &target);
        for (id, code) in (1..).zip(WORST) {
            ask(&mut client, id, code);
            let end = answer(&mut client, id).end;
            assert!(matches!(end, Event::Evaluated(_)), "{code}: {end:?}");
            assert_eq!(value(&mut client, "loss"), "0.25", "after {code}");
        }
        wait_until_idle(target.pid());
        drop(client);
        assert_eq!(target.end().status, 0);
    });
}
