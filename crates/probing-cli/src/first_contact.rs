//! The question on a terminal whether a new agent's certificate is trusted; without a terminal, the refusal.
//!
//! First contact with an agent: the user is asked on a terminal; without one, the agent is refused unless the user
//! said before that it can be trusted.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

use probing_client::{Fingerprint, FirstContact};
use probing_proto::env::PROBING_ACCEPT_NEW;

use crate::terminal;

/// What to do about agents that no earlier command has met. `accept_new` is the argument.
pub(crate) fn policy(accept_new: bool) -> FirstContact {
    let variable = PROBING_ACCEPT_NEW.value();
    if accept_new || variable.is_some_and(|value| value != "0") {
        FirstContact::Accept
    } else if io::stdin().is_terminal() && terminal::is_stderr_terminal() {
        FirstContact::Ask(ask)
    } else {
        FirstContact::Refuse
    }
}

/// Says what is to be said about an agent that was met.
pub(crate) fn say(note: &str) {
    // Whoever has closed it does not want to know.
    writeln!(terminal::stderr(), "{note}").ok();
}

fn ask(endpoint: &str, seen: Fingerprint) -> bool {
    // Several agents may be met at the same time.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let question = format!(
        "first contact with the agent at {endpoint}\n\
         its certificate is {seen}\n\
         Compare it with the output of `probing agent` there. Trust it from now on? [y/N] "
    );
    let mut answer = String::new();
    let asked = write!(terminal::stderr(), "{question}")
        .and_then(|()| io::stdin().read_line(&mut answer).map(drop));
    asked.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}
