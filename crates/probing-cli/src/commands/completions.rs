//! `probing completions`: prints the completion script of a shell.

use std::io;

use clap::CommandFactory as _;

use crate::arguments::Arguments;
use crate::exit::{self, Status};
use crate::terminal;

pub(crate) fn run(shell: clap_complete::Shell) -> anyhow::Result<Status> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "probing", &mut script);
    io::Write::write_all(&mut terminal::stdout(), &script)?;
    Ok(exit::OK)
}
