//! The debug adapter: an editor on one side, the probes of a job on the other.
//!
//! `framing` cuts the editor's bytes into messages, `session` is a state machine without IO, `driver` owns connections and threads and
//! carries out what the session asks for. `python/values.py` runs in the target and shows its values.

mod driver;
mod framing;
mod session;

pub use self::driver::{Reach, listen, serve};
