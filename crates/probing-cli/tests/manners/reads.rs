//! A probe that reads its own process for a client: whatever is asked for, the process goes on.

use probing_proto::message::reads::{FileCall, MAX_RANGES, MAX_READ};
use probing_proto::message::{Call, Event, Request, RequestId};
use probing_proto::wire;
use probing_testkit::{RawClient, every_python};

use crate::host::{client_of, ended_in_silence, probed, sandbox, socket_of, value};

#[track_caller]
fn answer(client: &mut RawClient, call: Call) -> Event {
    let id = RequestId(9);
    client.send(&Request { id, call });
    client.receive().unwrap().event
}

/// How long each piece is.
#[track_caller]
fn lengths(event: Event) -> Vec<Option<usize>> {
    match event {
        Event::Read(pieces) => pieces.lengths,
        event => panic!("{event:?}"),
    }
}

#[test]
fn any_address_is_survived() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let client = &mut client_of(&sandbox, &target);
        let mapped: u64 = value(client, "id(loss)").parse().unwrap();
        let kernel = 0xffff_8000_0000_0000;
        let ranges = [
            (mapped, 16),
            (0, 8),
            (mapped, 0),
            (u64::MAX - 3, 9),
            (kernel, 8),
            (0x8000_0000_0000, 8),
            (mapped, 24),
        ];
        let read = answer(
            client,
            Call::Memory {
                ranges: ranges.to_vec(),
            },
        );
        let expected = [Some(16), None, Some(0), None, None, None, Some(24)];
        assert_eq!(lengths(read), expected);
        for ranges in [
            vec![(mapped, MAX_READ + 1)],
            vec![(mapped, 1); MAX_RANGES + 1],
            vec![(mapped, usize::MAX); 2],
        ] {
            let refused = answer(client, Call::Memory { ranges });
            assert!(matches!(refused, Event::Failed(_)), "{refused:?}");
        }
        assert_eq!(value(client, "loss"), "0.25");
        ended_in_silence(target.end());
    });
}

#[test]
fn no_file_is_read_but_those_of_the_process() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let client = &mut client_of(&sandbox, &target);
        let mut read = |file: &str| {
            let (file, at, len) = (file.to_owned(), 0, 4096);
            answer(client, Call::File(FileCall { file, at, len }))
        };
        let thread = format!("task/{}/stat", target.pid());
        for file in ["maps", "status", "task", &thread] {
            assert!(matches!(read(file), Event::Read(_)), "{file}");
        }
        for file in [
            "/etc/passwd",
            "environ",
            "fd/0",
            "task/1/../../../etc/passwd",
            "task/x/stat",
            "",
        ] {
            assert!(matches!(read(file), Event::Failed(_)), "{file}");
        }
        ended_in_silence(target.end());
    });
}

/// Many requests for all that one answer can bring, of which not one is taken.
#[test]
fn a_client_that_takes_no_bytes_does_not_fill_the_target() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let before = target.usage().rss_kib;
        let mut client = RawClient::greeted(&socket_of(&sandbox, target.pid()));
        let address: u64 = value(&mut client, "id(loss)").parse().unwrap();
        let ranges = vec![(address, 1024); MAX_RANGES];
        for id in 0..50 {
            let (id, call) = (
                RequestId(id),
                Call::Memory {
                    ranges: ranges.clone(),
                },
            );
            let bytes = wire::encode(&Request { id, call }, &[], wire::MAX_REQUEST).unwrap();
            client.send_bytes(&bytes);
        }
        assert_eq!(value(&mut client_of(&sandbox, &target), "loss"), "0.25");
        let grown = target.usage().rss_kib.saturating_sub(before);
        assert!(grown < 40_000, "{grown} KiB");
        ended_in_silence(target.end());
    });
}
