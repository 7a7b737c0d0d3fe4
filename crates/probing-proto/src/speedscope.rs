//! The file that <https://www.speedscope.app> reads, as far as we write it.

use serde::Serialize;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpeedscopeFile {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: String,
    active_profile_index: usize,
    shared: Shared,
    profiles: Vec<AnyProfile>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum AnyProfile {
    Sampled(Profile),
    Evented(Evented),
}

/// What one thread called, in the order in which it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evented {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: i64,
    end_value: i64,
    events: Vec<FrameEvent>,
    #[serde(skip)]
    open: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct FrameEvent {
    #[serde(rename = "type")]
    kind: &'static str,
    frame: usize,
    at: i64,
}

impl Evented {
    /// Times are nanoseconds since 0.
    pub fn new(name: String, end_nanos: i64) -> Self {
        Self {
            kind: "evented",
            name,
            unit: "nanoseconds",
            start_value: 0,
            end_value: end_nanos,
            events: Vec::new(),
            open: Vec::new(),
        }
    }

    pub fn open(&mut self, frame: usize, at: i64) {
        self.open.push(frame);
        self.say("O", frame, at);
    }

    /// The frame that was opened last.
    pub fn close(&mut self, frame: usize, at: i64) {
        self.open.pop();
        self.say("C", frame, at);
    }

    /// All that is open ends with it.
    #[must_use]
    pub fn ended(mut self) -> Self {
        while let Some(frame) = self.open.pop() {
            self.say("C", frame, self.end_value);
        }
        self
    }

    fn say(&mut self, kind: &'static str, frame: usize, at: i64) {
        self.events.push(FrameEvent { kind, frame, at });
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Shared {
    frames: Vec<SpeedscopeFrame>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpeedscopeFrame {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: f64,
    end_value: f64,
    samples: Vec<Vec<usize>>,
    weights: Vec<f64>,
}

impl SpeedscopeFile {
    /// Stacks are indices of `frames`, outermost first, each with the seconds that were spent in it.
    pub fn new(
        name: String,
        frames: Vec<SpeedscopeFrame>,
        stacks: impl IntoIterator<Item = (Vec<usize>, f64)>,
    ) -> Self {
        let (samples, weights): (Vec<_>, Vec<f64>) = stacks.into_iter().unzip();
        let profile = Profile {
            kind: "sampled",
            name: name.clone(),
            unit: "seconds",
            start_value: 0.0,
            end_value: weights.iter().sum(),
            samples,
            weights,
        };
        Self {
            schema: SCHEMA,
            exporter: concat!("probing@", env!("CARGO_PKG_VERSION")).to_owned(),
            name,
            active_profile_index: 0,
            shared: Shared { frames },
            profiles: vec![AnyProfile::Sampled(profile)],
        }
    }

    /// What threads called.
    pub fn evented(name: String, frames: Vec<SpeedscopeFrame>, threads: Vec<Evented>) -> Self {
        Self {
            schema: SCHEMA,
            exporter: concat!("probing@", env!("CARGO_PKG_VERSION")).to_owned(),
            name,
            active_profile_index: 0,
            shared: Shared { frames },
            profiles: threads.into_iter().map(AnyProfile::Evented).collect(),
        }
    }
}
