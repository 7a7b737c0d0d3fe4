//! Says, from outside, who seems to keep the GIL: for the message when nothing could run.

use crate::inject::Target;
use crate::threads::{Place, Tid};

/// Main's place, which is what can be seen on every version.
pub(crate) fn seen(target: &Target<'_>) -> String {
    let main = Tid::main_of(target.pid);
    format!(
        "the GIL was not free, and main {}",
        Place::of(target.pid, main)
    )
}
