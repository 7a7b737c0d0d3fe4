//! The SIGTRAP handler that a client asks for before it sets debug registers in this process.

use std::ptr;

use probing_proto::message::{Event, Failure};
use probing_trap::NotGuarded;

/// Installs it. Needs no GIL.
pub(crate) fn guard() -> Event {
    match probing_trap::guard() {
        Ok(dropped) => Event::Guarded {
            dropped_at: ptr::from_ref(dropped) as u64,
        },
        Err(error) => Event::Failed(refusal(error)),
    }
}

fn refusal(error: NotGuarded) -> Failure {
    let failure = Failure::new(format!("debug registers are not safe here: {error}"));
    match error {
        NotGuarded::Ignored | NotGuarded::Replaced => failure.with_hint(
            "a stray debug exception would end the program; watch the variable by name, or accept the risk: \
             --unsafe-debug-registers",
        ),
        NotGuarded::Refused { .. } => failure,
    }
}
