//! Finds the processes of a configuration and connects to their probes, twice each.

use std::fs;

use probing_client::{
    ClientError, FanOutLimits, Keys, Member, Probe, Target, TargetSelectors, TargetSet, fan_out,
};
use probing_proto::message::Failure;
use probing_proto::process::Pid;

use crate::driver::Reach;
use crate::session::{AttachConfig, ReachedTarget};

/// For all processes together, those that nobody prepared included.
const REACH_TIMEOUT: std::time::Duration = std::time::Duration::from_mins(1);

/// A process, and its probe on two connections.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(super) target: Target,
    pub(super) control: Probe,
    pub(super) support: Probe,
    pub(super) reached: ReachedTarget,
}

pub(super) fn connect(reach: &Reach, config: &AttachConfig) -> Result<Vec<Connected>, Failure> {
    let set = targets(config)?.with_keys(&keys(reach, config)?);
    let members = members(&set).map_err(|error| failure_of(&error))?;
    let entry = reach.entry.clone();
    let answers = fan_out(
        &members,
        FanOutLimits::within(REACH_TIMEOUT),
        move |member| {
            let control = member.target.connect(&entry)?.probe;
            let support = member.target.connect(&entry)?.probe;
            Ok::<_, ClientError>((control, support))
        },
    );
    let mut all = Vec::new();
    for (member, answer) in members.iter().zip(answers) {
        let patience = REACH_TIMEOUT;
        let answer = answer.unwrap_or(Err(ClientError::TooLong { patience }));
        let (control, support) = answer.map_err(|error| {
            let mut failure = failure_of(&error);
            if members.len() > 1 {
                failure.error = format!("{}: {}", member.who, failure.error);
            }
            failure
        })?;
        all.push(connected(member, control, support));
    }
    Ok(all)
}

fn connected(member: &Member, control: Probe, support: Probe) -> Connected {
    let pid = member.pid.unwrap_or(control.hello().pid);
    let is_local = matches!(
        member.target,
        Target::Local(_) | Target::Name(_) | Target::Socket(_)
    );
    let reached = ReachedTarget {
        label: member.who.to_string(),
        name: command_of(pid, is_local).unwrap_or_else(|| member.target.to_string()),
        pid: pid.0,
        is_local,
    };
    Connected {
        target: member.target.clone(),
        control,
        support,
        reached,
    }
}

fn members(set: &TargetSet) -> Result<Vec<Member>, ClientError> {
    let members = set.members()?.all;
    if members.is_empty() || (members.len() > 1 && !set.is_by_rank()) {
        // Says who is there.
        set.sole()?;
    }
    Ok(members)
}

fn targets(config: &AttachConfig) -> Result<TargetSet, Failure> {
    let wrong =
        |what: &str, error: &dyn std::fmt::Display| Failure::new(format!("{what}: {error}"));
    let named = config.target.as_deref().map(str::parse::<TargetSelectors>);
    let named = named
        .transpose()
        .map_err(|error| wrong("endpoint", &error))?;
    let ranks = config.ranks.as_deref().map(str::parse).transpose();
    let ranks = ranks.map_err(|error| wrong("ranks", &error))?;
    Ok(TargetSet::new(named, ranks))
}

/// Those of the command, with what the configuration names in their place.
fn keys(reach: &Reach, config: &AttachConfig) -> Result<Keys, Failure> {
    let mut keys = reach.keys.clone();
    if let Some(path) = &config.token_file {
        let read = fs::read_to_string(path);
        let read = read.map_err(|error| {
            Failure::new(format!(
                "tokenFile cannot be read: {}: {error}",
                path.display()
            ))
        })?;
        keys.token = Some(read.trim().to_owned());
    }
    if let Some(token) = &config.token {
        keys.token = Some(token.trim().to_owned());
    }
    if let Some(fingerprint) = &config.fingerprint {
        let parsed = fingerprint.parse();
        keys.fingerprint =
            Some(parsed.map_err(|error| Failure::new(format!("fingerprint: {error}")))?);
    }
    if config.ca.is_some() {
        keys.ca.clone_from(&config.ca);
    }
    Ok(keys)
}

fn failure_of(error: &ClientError) -> Failure {
    let failure = match error {
        ClientError::NotDone(failure) | ClientError::Refused(failure) => return failure.clone(),
        error => Failure::new(error.to_string()),
    };
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

fn command_of(pid: Pid, is_local: bool) -> Option<String> {
    if !is_local {
        return None;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&line).replace('\0', " ");
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
