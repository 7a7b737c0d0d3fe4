//! Debuggers that are killed, in the middle of whatever they do: the program always goes on.

use std::io::Write as _;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use probing_proto::message::breakpoints::{DisconnectPolicy, SetBreakpoint, StopPolicy};
use probing_testkit::{Sandbox, Target, every_python, wait_until};

use crate::debugger::{Client, at, in_function, sandbox, stop};

const FEW: u32 = 2;
/// In each of four tests.
const MANY: u32 = 50;
/// Milliseconds that a debugger lives at most.
const LONGEST: usize = 200;

/// Where the program stops; there is something to step into, over and out of at each.
const PLACES: [&str; 5] = ["second", "twice", "breaks", "await", "recursion"];
const COMMANDS: [&str; 7] = [
    "n",
    "s",
    "r",
    "p total",
    "unt",
    "w",
    "p [each for each in range(9**7)]",
];
/// What the program does, and what it prints if nobody has done anything to it.
const CODE: &str = "print(trainer.fit(10), consume(), fails(), gathered(), factorial(4))";
const PRINTED: &str = "63 2 True 3 24";

/// Numbers that are different each time; a failure tells with which they began.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self(now.as_nanos() as u64 | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// A debugger with a few commands to carry out. It is not told that there are no more.
fn debugger(sandbox: &Sandbox, target: &Target, dice: &mut Dice) -> Child {
    let mut command = sandbox.command();
    command
        .args(["-t", &target.pid().to_string(), "debug"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.as_mut().unwrap();
    for _ in 0..8 {
        writeln!(stdin, "{}", COMMANDS[dice.below(COMMANDS.len())]).unwrap();
    }
    child
}

/// Of who goes on at once and who waits, of whose other threads wait, too: any, where nothing is said.
fn killed_again_and_again(rounds: u32, gone: Option<DisconnectPolicy>, all_threads: Option<bool>) {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "debugged.py");
        let mut client = Client::new(&sandbox, &target);
        let mut dice = Dice::new();
        let seed = dice.0;
        for round in 0..rounds {
            let hold = StopPolicy {
                connect_millis: 40,
                gone: gone
                    .unwrap_or([DisconnectPolicy::Keep, DisconnectPolicy::Resume][dice.below(2)]),
                all_threads: all_threads.unwrap_or(dice.below(4) == 0),
                ..StopPolicy::default()
            };
            for _ in 0..2 {
                let place = at(PLACES[dice.below(PLACES.len())]);
                client.arm(SetBreakpoint {
                    hold,
                    ..stop(place)
                });
            }
            client.arm(SetBreakpoint {
                hold,
                ..stop(in_function("Trainer.finish"))
            });
            target.say(CODE);
            let mut child = debugger(&sandbox, &target, &mut dice);
            // Any moment will do: before it is connected, in the middle of a step or of an evaluation, behind its last command.
            thread::sleep(Duration::from_millis(dice.below(LONGEST) as u64));
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(target.line(), PRINTED, "round {round} of {seed}");
            assert_eq!(target.line(), "done", "round {round} of {seed}");
            client.disarm_all();
            // A step may have ended behind that, in the program's own loop: until its deadline.
            wait_until("nothing is stopped", || client.stops().is_empty());
        }
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    });
}

#[test]
fn a_program_continues_when_its_debuggers_are_killed() {
    killed_again_and_again(FEW, None, None);
}

#[test]
#[ignore = "some minutes: `make stress`"]
fn a_program_that_waits_for_another_debugger_continues_when_many_are_killed() {
    killed_again_and_again(MANY, Some(DisconnectPolicy::Keep), Some(false));
}

#[test]
#[ignore = "some minutes: `make stress`"]
fn a_program_that_waits_for_none_continues_when_many_are_killed() {
    killed_again_and_again(MANY, Some(DisconnectPolicy::Resume), Some(false));
}

#[test]
#[ignore = "some minutes: `make stress`"]
fn all_threads_that_wait_for_another_debugger_resume_when_many_are_killed() {
    killed_again_and_again(MANY, Some(DisconnectPolicy::Keep), Some(true));
}

#[test]
#[ignore = "some minutes: `make stress`"]
fn all_threads_that_wait_for_none_resume_when_many_are_killed() {
    killed_again_and_again(MANY, Some(DisconnectPolicy::Resume), Some(true));
}
