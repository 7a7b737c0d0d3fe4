//! `probing dap`

use std::net::SocketAddr;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  VS Code, in launch.json:
    {\"type\": \"probing\", \"request\": \"attach\", \"name\": \"train\", \"endpoint\": \"train.py\"}
  Neovim, with nvim-dap:
    dap.adapters.probing = {type = \"executable\", command = \"probing\", args = {\"dap\"}}

An editor starts this command and speaks the Debug Adapter Protocol on its standard input and output. Its
configuration names the process (`endpoint`: a pid, a script's name, unix:PATH, HOST:PORT/PID; or `processId`)
and how it is debugged: docs/editors.md. Breakpoints are deleted when the editor leaves, however it does.")]
pub(crate) struct DapArguments {
    /// Serve editors that connect to this loopback address, port 0 for a free one; print it and a token,
    /// which a configuration has to name as `adapterToken`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
}
