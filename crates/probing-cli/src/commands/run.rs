//! `probing run -- COMMAND`: becomes the command, with the probe's start-up folder on its Python path.

mod interpreter;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;
use probing_client::package_dir;
use probing_proto::env::{PROBING, PROBING_COMMAND, PYTHONPATH};

use crate::arguments::RunArguments;
use crate::errors::CommandError;
use crate::exit::{self, Status};
use crate::terminal;

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<Status> {
    let (program, rest) = arguments
        .command
        .split_first()
        .context("no command to run")?;
    let mut path = package_dir()?.join("probing/_boot").into_os_string();
    if let Some(before) = PYTHONPATH.value() {
        path.push(OsString::from(":"));
        path.push(before);
    }
    let mut command = Command::new(program);
    command
        .args(rest)
        .env(PROBING.name, "1")
        .env(PYTHONPATH.name, path);
    if let Ok(own) = std::env::current_exe() {
        command.env(PROBING_COMMAND.name, own);
    }
    if let Some(option) = interpreter::without_hook(&arguments.command) {
        let (pid, mut err) = (std::process::id(), terminal::stderr());
        writeln!(
            err,
            "warning: {option} disables the start-up hook: the program starts without the probe"
        )?;
        writeln!(err, "hint: attach after the start: probing -t {pid} attach")?;
    }
    // Returns only when it fails.
    let error = command.exec();
    let status = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_STARTED,
    };
    let message = format!("cannot run {}: {error}", program.display());
    Err(CommandError::new(status, message).into())
}
