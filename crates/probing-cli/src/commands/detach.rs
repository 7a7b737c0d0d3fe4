//! `probing detach`: removes the probe from targets.

use std::io::Write as _;
use std::time::Duration;

use probing_client::{ClientError, FanOutLimits, Group};

use crate::commands::TargetArgs;
use crate::commands::answers::MemberResults;
use crate::exit::{self, Status};
use crate::terminal;

/// A probe has two seconds to say hello and two to leave.
const DETACH_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn run(aim: &TargetArgs) -> anyhow::Result<Status> {
    if aim.targets.one().is_none() {
        return each(aim);
    }
    let probe = aim.connect()?;
    let process = probe.process();
    probe.detach()?;
    writeln!(terminal::stderr(), "detached from {process}")?;
    Ok(exit::OK)
}

/// From all of a set at the same time. One without a probe is as it should be, if others had one.
fn each(aim: &TargetArgs) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let entry = aim.entry.clone();
    let answers = MemberResults::of(
        &members,
        FanOutLimits::within(DETACH_TIMEOUT),
        move |member| {
            let probe = match member.target.connect(&entry) {
                Err(ClientError::NoProbe { .. }) => return Ok(None),
                reached => reached?.probe,
            };
            let process = probe.process();
            probe.detach()?;
            Ok(Some(process))
        },
    );
    let mut err = terminal::stderr();
    let (mut without, mut any) = (Vec::new(), false);
    for (who, left) in answers.given() {
        match left {
            Some(process) => {
                any = true;
                writeln!(err, "{who}: detached from {process}")?;
            }
            None => without.push(who),
        }
    }
    if !without.is_empty() {
        let group: Group = without.into_iter().collect();
        writeln!(err, "{group}: no probe")?;
    }
    for line in answers.failures() {
        writeln!(err, "{line}")?;
    }
    if any {
        Ok(answers.status())
    } else {
        Ok(exit::UNREACHABLE)
    }
}
