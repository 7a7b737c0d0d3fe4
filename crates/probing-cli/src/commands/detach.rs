//! `probing -t PID detach`

use std::io::Write as _;

use probing_client::Target;

use crate::exit::{self, Status};

pub(crate) fn run(target: Option<Target>) -> anyhow::Result<Status> {
    let probe = super::connect(target)?;
    let pid = probe.hello().pid;
    probe.detach()?;
    writeln!(anstream::stderr(), "detached from {pid}")?;
    Ok(exit::OK)
}
