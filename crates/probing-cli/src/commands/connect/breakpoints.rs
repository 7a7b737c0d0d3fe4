//! Breakpoints and stops over `probing connect`: from lines of JSON to calls of the probe.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use probing_client::{ClientError, Contact, Entry, Probe};
use probing_proto::message::breakpoints::{
    Action, BreakpointId, BreakpointLocation, SetBreakpoint, StopId,
};
use probing_proto::wire::json_lines::{BreakpointArgs, LineEvent};

use crate::arguments::{ActionArg, CodeLocation, Variable};

pub(super) fn arm(contact: &Contact, asked: BreakpointArgs) -> anyhow::Result<LineEvent> {
    let arm = understood(asked)?;
    let mut probe = contact.probe()?;
    let points = vec![probe.arm(arm)?];
    contact.keep(probe);
    Ok(LineEvent::Points { points })
}

pub(super) fn disarm(contact: &Contact, wanted: Vec<BreakpointId>) -> anyhow::Result<LineEvent> {
    let points = ask(contact, |probe| probe.disarm(wanted))?;
    Ok(LineEvent::Points { points })
}

pub(super) fn points(contact: &Contact) -> anyhow::Result<LineEvent> {
    let points = ask(contact, Probe::points)?;
    Ok(LineEvent::Points { points })
}

pub(super) fn stops(contact: &Contact) -> anyhow::Result<LineEvent> {
    let stops = ask(contact, Probe::stops)?;
    Ok(LineEvent::Stops { stops })
}

pub(super) fn release(contact: &Contact, wanted: Vec<StopId>) -> anyhow::Result<LineEvent> {
    let stops = ask(contact, |probe| probe.release(wanted))?;
    Ok(LineEvent::Stops { stops })
}

/// Without a probe nothing is armed and nothing stopped.
fn ask<A: Default>(
    contact: &Contact,
    ask: impl FnOnce(&mut Probe) -> Result<A, ClientError>,
) -> anyhow::Result<A> {
    match contact.target()?.connect(&Entry::Forbidden) {
        Err(ClientError::NoProbe { .. }) => Ok(A::default()),
        reached => Ok(ask(&mut reached?.probe)?),
    }
}

fn understood(asked: BreakpointArgs) -> anyhow::Result<SetBreakpoint> {
    let wrong = |why: String| anyhow!(why);
    let place = match (asked.place, asked.raise, asked.uncaught, asked.watch) {
        (Some(place), None, false, None) => place.parse::<CodeLocation>().map_err(wrong)?.0,
        (None, Some(exception), false, None) => BreakpointLocation::Raise {
            exception: Some(exception),
        },
        (None, None, true, None) => BreakpointLocation::Uncaught,
        (None, None, false, Some(variable)) => variable.parse::<Variable>().map_err(wrong)?.0,
        _ => bail!("name one of place, raise, uncaught and watch"),
    };
    let is_watch = place.is_watch();
    let action = match asked.action {
        Some(action) => action.parse::<ActionArg>().map_err(wrong)?.0,
        None if is_watch => Action::Count,
        None => Action::Stop,
    };
    let ttl_millis = millis(asked.ttl_seconds).context("ttl_seconds")?;
    let expression_millis =
        millis(asked.expression_timeout_seconds).context("expression_timeout_seconds")?;
    Ok(SetBreakpoint {
        place,
        condition: asked.condition,
        hits: asked.hits.unwrap_or(1),
        once: asked.once,
        action,
        stats: asked.stats,
        own: false,
        ttl_millis,
        expression_millis,
        hold: asked.hold.unwrap_or_default(),
    })
}

/// Whole milliseconds, at least one unless it is 0: that means that there is no limit.
fn millis(seconds: Option<f64>) -> anyhow::Result<Option<u64>> {
    let time = seconds.map(Duration::try_from_secs_f64).transpose()?;
    Ok(time.map(|time| u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_says_where() {
        let place = |place: &str| BreakpointArgs {
            place: Some(place.to_owned()),
            ..BreakpointArgs::default()
        };
        let line = understood(place("train.py:3")).unwrap();
        let file = "train.py".to_owned();
        assert_eq!(line.place, BreakpointLocation::Line { file, line: 3 });
        assert_eq!(line.action, Action::Stop);
        let watch = BreakpointArgs {
            watch: Some("lr".to_owned()),
            ..BreakpointArgs::default()
        };
        assert_eq!(understood(watch).unwrap().action, Action::Count);
        let both = BreakpointArgs {
            uncaught: true,
            ..place("f")
        };
        assert!(understood(both).is_err());
        assert!(understood(BreakpointArgs::default()).is_err());
    }
}
