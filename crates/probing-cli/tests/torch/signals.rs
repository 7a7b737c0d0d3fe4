//! Signal handlers of a training run once while its main thread is recorded.

use probing_testkit::{Target, every_torch};
use rustix::process::Signal;

use crate::sandbox;

/// How often each signal is sent beside each of what is recorded.
const ROUNDS: u32 = 4;
/// Sent at once. None of their handlers raises.
const BURST: [Signal; 4] = [Signal::USR1, Signal::USR2, Signal::HUP, Signal::WINCH];

/// Waits until the program has counted so many, handled and caught, and never more.
fn await_counts(target: &mut Target, [received, caught]: [u32; 2], kind: &str) {
    loop {
        let line = target.line();
        let mut counts = line.split(' ').map(|count| count.parse::<u32>().unwrap());
        let counts = [counts.next().unwrap(), counts.next().unwrap()];
        if counts == [received, caught] {
            return;
        }
        assert!(
            counts[0] <= received && counts[1] <= caught,
            "{kind}: {line}, not {received} {caught}"
        );
    }
}

#[test]
fn every_signal_reaches_a_program_of_which_torch_is_recorded() {
    every_torch(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "with_torch/signalled.py");
        let mut target = target.env("GLOO_SOCKET_IFNAME", "lo").start();
        let pid = target.pid().to_string();
        let mut so_far = [0, 0];
        for [on, off] in [
            [&["watch", "watched"][..], &["delete", "all"]],
            [&["watch", "watched", "--stats"], &["delete", "all"]],
            [&["torch", "on"], &["torch", "off"]],
            [&["collectives", "on"], &["collectives", "off"]],
        ] {
            let kind = on.join(" ");
            let probing = |arguments: &[&str]| {
                let ran = sandbox.probing([&["-t", &pid], arguments].concat());
                assert_eq!(ran.status, 0, "{ran:?}");
            };
            probing(on);
            for _ in 0..ROUNDS {
                target.signal(Signal::TERM);
                so_far = [so_far[0] + 1, so_far[1] + 1];
                await_counts(&mut target, so_far, &kind);
                for signal in BURST {
                    target.signal(signal);
                }
                so_far[0] += BURST.len() as u32;
                await_counts(&mut target, so_far, &kind);
            }
            probing(off);
        }
        let ended = target.end();
        assert_eq!(ended.status, 0, "{ended:?}");
    });
}
