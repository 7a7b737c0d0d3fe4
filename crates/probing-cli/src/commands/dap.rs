//! `probing dap`: serves an editor on standard input and output.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;

use anyhow::bail;
use probing_client::{Entry, Keys};
use probing_dap::Reach;

use crate::arguments::DapArguments;
use crate::exit::{self, Status};
use crate::terminal;

pub(crate) fn run(arguments: &DapArguments, keys: Keys, entry: Entry) -> anyhow::Result<Status> {
    let reach = Reach { keys, entry };
    if let Some(address) = arguments.listen {
        if !address.ip().is_loopback() {
            bail!(
                "not a loopback address: {address}; to debug on another machine, run the adapter here and an agent there (docs/remote.md)"
            );
        }
        probing_dap::listen(&reach, address, |address, token| {
            let mut out = terminal::stdout();
            writeln!(out, "listening on {address}, adapterToken {token}")?;
            out.flush()
        })?;
        return Ok(exit::OK);
    }
    if io::stdin().is_terminal() {
        bail!(
            "standard input is a terminal: an editor starts this command and speaks to it (docs/editors.md)"
        );
    }
    let mut out = editor_output()?;
    probing_dap::serve(&reach, io::stdin(), &mut out)?;
    Ok(exit::OK)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the editor reads bytes as they are; JSON has no control characters"
)]
fn editor_output() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}
