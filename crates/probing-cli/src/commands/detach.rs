//! `probing -t PID detach`

use std::io::Write as _;

use super::Aim;
use crate::exit::{self, Status};

pub(crate) fn run(aim: &Aim) -> anyhow::Result<Status> {
    let probe = aim.connect()?;
    let pid = probe.hello().pid;
    probe.detach()?;
    writeln!(anstream::stderr(), "detached from {pid}")?;
    Ok(exit::OK)
}
