//! Clients that send nonsense, too much, a part or nothing harm neither the target nor other clients.

use std::thread;

use probing_proto::message::{Call, Eval, Event, Failure, Request, RequestId};
use probing_proto::wire;
use probing_testkit::{RawClient, Sandbox, Target, every_python, wait_until};

use crate::host::{
    all_pythons_at_once, answer, ask, client_of, ended_in_silence, order, probe_thread, probed,
    sandbox, socket_of, status_of, told, value, wait_until_idle,
};

/// A frame around any text, as any client could send it.
fn frame(json: &str) -> Vec<u8> {
    let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(json.as_bytes());
    bytes
}

fn eval_request(id: u64, code: &str) -> Vec<u8> {
    let call = Call::Eval(Eval::of(code));
    wire::encode(
        &Request {
            id: RequestId(id),
            call,
        },
        &[],
        wire::MAX_REQUEST,
    )
    .unwrap()
}

/// Checks that the target is as it was: others are served, nothing was printed, no file and no thread is left.
#[track_caller]
fn check_unharmed(sandbox: &Sandbox, target: Target, files: usize) {
    assert_eq!(value(&mut client_of(sandbox, &target), "loss"), "0.25");
    wait_until("the files are closed", || {
        target.usage().open_files == files
    });
    wait_until_idle(target.pid());
    ended_in_silence(target.end());
}

fn failure(event: &Event) -> &Failure {
    match event {
        Event::Failed(failure) => failure,
        event => panic!("{event:?}"),
    }
}

#[test]
fn garbage_ends_the_connection_it_came_on() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let (files, memory) = (target.usage().open_files, target.usage().rss_kib);
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
            &[0xff; 8],
            &[0xff; 4096],
            &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            &vec![0x7f; 100_000],
        ] {
            let mut client = client_of(&sandbox, &target);
            client.send_bytes(bytes);
            let refused = client.receive().unwrap();
            let message = &failure(&refused.event).error;
            assert!(message.contains("longer than the limit"), "{message}");
            assert_eq!(client.receive(), None);
        }
        assert!(target.usage().rss_kib < memory + 4096);
        check_unharmed(&sandbox, target, files);
    });
}

#[test]
fn a_request_that_is_not_understood_fails_alone() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let files = target.usage().open_files;
        let mut client = client_of(&sandbox, &target);
        for (json, id) in [
            (
                r#"{"id": 5, "op": "teleport", "to": "mars"}"#,
                Some(RequestId(5)),
            ),
            (r#"{"id": 6, "op": "eval"}"#, Some(RequestId(6))),
            (r#"{"id": -1, "op": "detach"}"#, None),
            (r#"{"op": "detach"}"#, None),
            ("", None),
            ("\0\0\0", None),
            ("[[[[[[", None),
            (&"[".repeat(100_000), None),
        ] {
            client.send_bytes(&frame(json));
            let refused = client.receive().unwrap();
            assert_eq!(refused.id, id, "{json:.40}");
            let message = &failure(&refused.event).error;
            assert!(message.starts_with("message not understood"), "{message}");
        }
        assert_eq!(value(&mut client, "loss"), "0.25");
        drop(client);
        check_unharmed(&sandbox, target, files);
    });
}

#[test]
fn half_a_frame_is_waited_for_without_keeping_anybody() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let files = target.usage().open_files;
        let request = eval_request(9, "'at last'");
        let (mut slow, mut gone) = (client_of(&sandbox, &target), client_of(&sandbox, &target));
        slow.send_bytes(&request[..3]);
        gone.send_bytes(&request[..20]);
        drop(gone);
        assert_eq!(value(&mut client_of(&sandbox, &target), "loss"), "0.25");
        slow.send_bytes(&request[3..]);
        let answer = answer(&mut slow, 9);
        assert!(format!("{answer:?}").contains("at last"), "{answer:?}");
        drop(slow);
        check_unharmed(&sandbox, target, files);
    });
}

#[test]
fn the_eval_of_a_client_that_disappears_is_interrupted() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        let files = target.usage().open_files;
        for code in [
            "while True: turns += 1",
            "while True: turns += 1; print('x' * 1000)",
        ] {
            order(&mut target, "turns = 0");
            let mut client = client_of(&sandbox, &target);
            ask(&mut client, 1, code);
            wait_until("the eval runs", || {
                told(&mut target, "turns > 10") == "True"
            });
            drop(client);
            wait_until_idle(target.pid());
        }
        check_unharmed(&sandbox, target, files);
    });
}

#[test]
fn a_client_that_does_not_read_costs_little_memory_and_no_others_time() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let (mut deaf, mut other) = (client_of(&sandbox, &target), client_of(&sandbox, &target));
        value(&mut other, "printed = 0");
        let before = target.usage().rss_kib;
        ask(
            &mut deaf,
            1,
            "for _ in range(500): print('x' * 100_000); printed += 1",
        );
        wait_until("the eval prints", || {
            value(&mut other, "printed > 5") == "True"
        });
        for _ in 0..50 {
            assert_eq!(value(&mut other, "loss"), "0.25");
        }
        // It waits for its client, and so do most of the 50 megabytes.
        let printed: u32 = value(&mut other, "printed").parse().unwrap();
        assert!(printed < 100, "{printed} printed");
        let peak = status_of(target.pid(), "VmHWM:");
        let peak: u64 = peak.trim_end_matches(" kB").parse().unwrap();
        assert!(
            peak < before + (8 << 10),
            "{before} KiB before, {peak} KiB then"
        );
        drop(deaf);
        wait_until_idle(target.pid());
        ended_in_silence(target.end());
    });
}

#[test]
fn a_client_that_asks_and_does_not_read_costs_little_memory() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let before = target.usage().rss_kib;
        let socket = socket_of(&sandbox, target.pid());
        let mut deaf = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        // Until the probe takes no more.
        deaf.set_nonblocking(true).unwrap();
        let requests = frame(r#"{"id":1,"op":"?"}"#).repeat(1000);
        let mut client = RawClient::greeted(&socket);
        for _ in 0..500 {
            std::io::Write::write(&mut deaf, &requests).ok();
            assert_eq!(value(&mut client, "loss"), "0.25");
        }
        let after = target.usage().rss_kib;
        assert!(
            after < before + (8 << 10),
            "{before} KiB before, {after} KiB after"
        );
        drop((deaf, client));
        wait_until_idle(target.pid());
        ended_in_silence(target.end());
    });
}

#[test]
fn an_id_that_is_in_use_is_refused_and_the_first_continues() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        order(&mut target, "import threading; go_on = threading.Event()");
        let mut client = client_of(&sandbox, &target);
        ask(&mut client, 3, "go_on.wait(); 'the first'");
        ask(&mut client, 3, "'the second'");
        let refused = answer(&mut client, 3);
        assert!(
            failure(&refused.end).error.contains("in flight: 3"),
            "{refused:?}"
        );
        order(&mut target, "go_on.set()");
        let first = answer(&mut client, 3);
        assert!(format!("{first:?}").contains("the first"), "{first:?}");

        // And it can still be interrupted: its client goes.
        order(&mut target, "turns = 0");
        ask(&mut client, 3, "while True: turns += 1");
        ask(&mut client, 3, "'the second'");
        answer(&mut client, 3);
        drop(client);
        wait_until_idle(target.pid());
        ended_in_silence(target.end());
    });
}

#[test]
fn ten_clients_at_once_get_their_own_answers() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let files = target.usage().open_files;
        thread::scope(|scope| {
            for number in 0..10 {
                let client = client_of(&sandbox, &target);
                scope.spawn(move || ask_four_at_once(client, number));
            }
        });
        check_unharmed(&sandbox, target, files);
    });
}

/// Has four evals in flight and checks that each prints what it should, in its order.
fn ask_four_at_once(mut client: RawClient, number: u32) {
    for id in 0..4 {
        let code = format!("[print('{number}.{id}', turn) for turn in range(50)] and None");
        ask(&mut client, id, &code);
    }
    let mut output = [const { String::new() }; 4];
    let mut ended = 0;
    while ended < 4 {
        let message = client.receive().unwrap();
        let id = message.id.unwrap().0 as usize;
        match message.event {
            Event::Output { text, .. } => output[id].push_str(&text),
            Event::Evaluated(_) => ended += 1,
            event => panic!("{event:?}"),
        }
    }
    for (id, output) in output.iter().enumerate() {
        let expected: String = (0..50)
            .map(|turn| format!("{number}.{id} {turn}\n"))
            .collect();
        assert_eq!(*output, expected);
    }
}

#[test]
fn too_many_clients_are_told_so() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let files = target.usage().open_files;
        let mut clients: Vec<RawClient> = (0..64).map(|_| client_of(&sandbox, &target)).collect();
        let socket = socket_of(&sandbox, target.pid());
        for _ in 0..3 {
            let mut refused = RawClient::connect(&socket);
            let message = refused.receive().unwrap();
            assert_eq!(
                failure(&message.event).error,
                "the probe has 64 clients already"
            );
            assert_eq!(refused.receive(), None);
        }
        let ran = sandbox.eval(&target, "1");
        assert_eq!(ran.status, 3, "{ran:?}");
        assert!(
            ran.stderr.contains("end one of them and try again"),
            "{ran:?}"
        );
        // Those that were there first are served, and one that goes makes room.
        assert_eq!(value(&mut clients[63], "loss"), "0.25");
        clients.truncate(63);
        clients.push(client_of(&sandbox, &target));
        drop(clients);
        check_unharmed(&sandbox, target, files);
    });
}

#[test]
fn a_process_without_free_file_numbers_is_not_kept_busy() {
    all_pythons_at_once(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        order(
            &mut target,
            "import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); taken = []",
        );
        order(
            &mut target,
            r"exec('try:\n    while True: taken.append(os.dup(0))\nexcept OSError: pass')",
        );
        // It waits at the door: the probe wakes up, cannot let it in, and goes to sleep for a while, again and again.
        let idle = probe_thread(target.pid());
        let mut client = RawClient::connect(&socket_of(&sandbox, target.pid()));
        wait_until("the probe has slept twice, or works hard", || {
            let now = probe_thread(target.pid());
            now.voluntary_switches > idle.voluntary_switches + 1
                || now.cpu_nanos > idle.cpu_nanos + 500_000_000
        });
        let used = probe_thread(target.pid()).cpu_nanos - idle.cpu_nanos;
        assert!(used < 100_000_000, "{used} ns of CPU");
        // As soon as there is a number, it is served.
        order(&mut target, "[os.close(number) for number in taken]");
        assert!(matches!(client.receive().unwrap().event, Event::Hello(_)));
        assert_eq!(value(&mut client, "loss"), "0.25");
        ended_in_silence(target.end());
    });
}
