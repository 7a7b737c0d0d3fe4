//! Breakpoints and stops for a program: its words become what the probe is asked for.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use probing_client::{ClientError, Contact, Entry, Probe};
use probing_proto::lines::{AskedArm, Tell};
use probing_proto::stops::{Action, Arm, Place, PointId, StopId};

use crate::arguments::{CodePlace, Doing, Variable};

pub(super) fn arm(contact: &Contact, asked: AskedArm) -> anyhow::Result<Tell> {
    let arm = understood(asked)?;
    let mut probe = contact.probe()?;
    let points = vec![probe.arm(arm)?];
    contact.keep(probe);
    Ok(Tell::Points { points })
}

pub(super) fn disarm(contact: &Contact, wanted: Vec<PointId>) -> anyhow::Result<Tell> {
    let points = ask(contact, |probe| probe.disarm(wanted))?;
    Ok(Tell::Points { points })
}

pub(super) fn points(contact: &Contact) -> anyhow::Result<Tell> {
    let points = ask(contact, Probe::points)?;
    Ok(Tell::Points { points })
}

pub(super) fn stops(contact: &Contact) -> anyhow::Result<Tell> {
    let stops = ask(contact, Probe::stops)?;
    Ok(Tell::Stops { stops })
}

pub(super) fn release(contact: &Contact, wanted: Vec<StopId>) -> anyhow::Result<Tell> {
    let stops = ask(contact, |probe| probe.release(wanted))?;
    Ok(Tell::Stops { stops })
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

fn understood(asked: AskedArm) -> anyhow::Result<Arm> {
    let wrong = |why: String| anyhow!(why);
    let place = match (asked.place, asked.raise, asked.uncaught, asked.watch) {
        (Some(place), None, false, None) => place.parse::<CodePlace>().map_err(wrong)?.0,
        (None, Some(exception), false, None) => Place::Raise {
            exception: Some(exception),
        },
        (None, None, true, None) => Place::Uncaught,
        (None, None, false, Some(variable)) => variable.parse::<Variable>().map_err(wrong)?.0,
        _ => bail!("one of place, raise, uncaught and watch says where"),
    };
    let is_watch = place.is_watch();
    let action = match asked.action {
        Some(action) => action.parse::<Doing>().map_err(wrong)?.0,
        None if is_watch => Action::Count,
        None => Action::Stop,
    };
    let ttl = asked.ttl_seconds.map(Duration::try_from_secs_f64);
    let ttl = ttl.transpose().context("ttl_seconds")?;
    Ok(Arm {
        place,
        condition: asked.condition,
        hits: asked.hits.unwrap_or(1),
        once: asked.once,
        action,
        stats: asked.stats,
        own: false,
        ttl_millis: ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
        expression_millis: None,
        hold: asked.hold.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_says_where() {
        let place = |place: &str| AskedArm {
            place: Some(place.to_owned()),
            ..AskedArm::default()
        };
        let line = understood(place("train.py:3")).unwrap();
        let file = "train.py".to_owned();
        assert_eq!(line.place, Place::Line { file, line: 3 });
        assert_eq!(line.action, Action::Stop);
        let watch = AskedArm {
            watch: Some("lr".to_owned()),
            ..AskedArm::default()
        };
        assert_eq!(understood(watch).unwrap().action, Action::Count);
        let both = AskedArm {
            uncaught: true,
            ..place("f")
        };
        assert!(understood(both).is_err());
        assert!(understood(AskedArm::default()).is_err());
    }
}
