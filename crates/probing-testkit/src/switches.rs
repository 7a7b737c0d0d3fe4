//! Switches of the probe, turned on and off again and again beside threads of the program that use what is switched.

use probing_proto::message::{Event, RequestId};
use serde_json::{Value, json};

use crate::{RawClient, Sandbox, Target};

const WARM_UP_EVALS: u32 = 500;
/// Blocks per cycle: what looks for code keeps a list of all that there is for a while.
const MAX_BLOCKS: u64 = 20;
const MAX_FILES: usize = 20;

/// Something that is switched on by some requests and off by others.
#[derive(Debug, Clone)]
pub struct Switch {
    pub name: &'static str,
    pub on: Vec<Value>,
    pub off: Vec<Value>,
    /// Threads of the program go on while it is on.
    pub lets_go_on: bool,
    /// To switch it on is to look for code, which takes longer than all else.
    pub searches: bool,
}

impl Switch {
    pub fn new(name: &'static str, on: Value, off: Value) -> Self {
        Self {
            name,
            on: vec![on],
            off: vec![off],
            lets_go_on: true,
            searches: false,
        }
    }

    /// A breakpoint or a watch.
    pub fn armed(name: &'static str, place: Value, action: Value) -> Self {
        let on = json!({"op": "arm", "place": place, "action": action, "ttl_millis": 0});
        Self::new(name, on, json!({"op": "disarm", "points": []}))
    }

    /// A trace.
    pub fn traced(name: &'static str, on: Value) -> Self {
        let off = json!({"op": "untrace", "traces": []});
        Self::new(name, on, off).searching()
    }

    #[must_use]
    pub fn searching(self) -> Self {
        Self {
            searches: true,
            ..self
        }
    }

    /// Several at once, which a detach ends.
    pub fn ended_by_detach<'a>(switches: impl IntoIterator<Item = &'a Self>) -> Self {
        Self {
            name: "a detach",
            on: switches.into_iter().flat_map(|it| it.on.clone()).collect(),
            off: vec![json!({"op": "detach"})],
            lets_go_on: true,
            searches: true,
        }
    }
}

/// How one switch went, and what the target had of what could grow.
#[derive(Debug)]
pub struct Switching {
    pub cycles: u32,
    /// Blocks of memory that Python has given out: after three fifths of the cycles, and at the end.
    pub blocks: [u64; 2],
    pub rss_kib: [u64; 2],
    pub open_files: [usize; 2],
}

impl Switching {
    /// No cycle leaves anything behind. What is kept of evals and of what was armed grows a little, and less and less.
    ///
    /// # Panics
    ///
    /// When something is.
    #[track_caller]
    pub fn assert_flat(&self) {
        let between = u64::from(self.cycles) / 5 * 2;
        let blocks = self.blocks[1].saturating_sub(self.blocks[0]);
        assert!(blocks < MAX_BLOCKS * between, "{self:?}");
        // Threads that come while something is recorded may add a file each, up to a number.
        let files = self.open_files[1].saturating_sub(self.open_files[0]);
        assert!(files < MAX_FILES, "{self:?}");
    }
}

/// A target whose main thread serves as `tests/targets/laps.py` does, and a connection to its probe.
#[derive(Debug)]
pub struct Switchboard<'a> {
    sandbox: &'a Sandbox,
    target: Target,
    client: RawClient,
    next: u64,
}

impl<'a> Switchboard<'a> {
    pub fn new(sandbox: &'a Sandbox, target: Target) -> Self {
        let client = RawClient::of(sandbox, &target);
        Self {
            sandbox,
            target,
            client,
            next: 1,
        }
    }

    pub fn target(&mut self) -> &mut Target {
        &mut self.target
    }

    /// Asks for something. The answer is the last message of this request.
    ///
    /// # Panics
    ///
    /// When it is refused, or nobody answers any more.
    #[track_caller]
    pub fn ask(&mut self, call: &Value) -> Event {
        let id = RequestId(self.next);
        self.next += 1;
        let mut request = call.clone();
        request["id"] = json!(id);
        self.client
            .send(&serde_json::from_value(request).expect("a request"));
        loop {
            let Some(message) = self.client.receive() else {
                panic!("the target hung up at {call}: {}", self.last_words());
            };
            match message.event {
                Event::Output { .. } => {}
                event if message.id == Some(id) => {
                    assert!(!matches!(event, Event::Failed(_)), "{call}: {event:?}");
                    return event;
                }
                _ => {}
            }
        }
    }

    /// Why the target does not answer.
    fn last_words(&mut self) -> String {
        match self.target.status() {
            None => "it has not ended".to_owned(),
            Some(status) => format!("it has ended with status {status}"),
        }
    }

    /// What an expression is in the program.
    ///
    /// # Panics
    ///
    /// When it raises.
    #[track_caller]
    pub fn value(&mut self, code: &str) -> String {
        match self.ask(&json!({"op": "eval", "code": code})) {
            Event::Evaluated(evaluated) => {
                let told = serde_json::to_value(&evaluated).expect("it can be shown");
                let value = told["value"].as_str().map(str::to_owned);
                value.unwrap_or_else(|| panic!("{code}: {told}"))
            }
            other => panic!("{code}: {other:?}"),
        }
    }

    /// Has Python make what it keeps of evals, so that nothing seems to grow later.
    pub fn warm_up(&mut self) {
        for _ in 0..WARM_UP_EVALS {
            self.value("1");
        }
    }

    /// On and off, so many times; every other time it stays on until all threads have gone once around.
    #[track_caller]
    pub fn turn(&mut self, switch: &Switch, cycles: u32) -> Switching {
        let mut switching = Switching {
            cycles,
            blocks: [0; 2],
            rss_kib: [0; 2],
            open_files: [0; 2],
        };
        for cycle in 0..cycles {
            for on in &switch.on {
                self.ask(on);
            }
            if switch.lets_go_on && cycle % 2 == 0 {
                self.go_around(switch);
            }
            for off in &switch.off {
                self.ask(off);
                if off["op"] == "detach" {
                    self.begin_again();
                }
            }
            if cycle == cycles / 5 * 3 {
                self.measure(&mut switching, 0);
            }
        }
        self.go_around(switch);
        self.measure(&mut switching, 1);
        switching
    }

    /// Nothing has gone wrong in any thread.
    #[track_caller]
    fn go_around(&mut self, switch: &Switch) {
        assert_eq!(self.value("lap()"), "[]", "{}", switch.name);
    }

    /// The probe has left: has the program start another.
    fn begin_again(&mut self) {
        while self.client.receive().is_some() {}
        self.target.say("start");
        assert_eq!(self.target.line(), "started");
        self.client = RawClient::of(self.sandbox, &self.target);
    }

    fn measure(&mut self, switching: &mut Switching, place: usize) {
        let blocks = self.value("blocks()");
        let usage = self.target.usage();
        switching.blocks[place] = blocks.parse().expect("a number");
        switching.rss_kib[place] = usage.rss_kib;
        switching.open_files[place] = usage.open_files;
    }
}
