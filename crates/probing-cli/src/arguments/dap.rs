//! Arguments of `probing dap`.

use std::net::SocketAddr;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  VS Code, in launch.json:
    {\"type\": \"probing\", \"request\": \"attach\", \"name\": \"train\", \"endpoint\": \"train.py\"}
  Neovim, with nvim-dap:
    dap.adapters.probing = {type = \"executable\", command = \"probing\", args = {\"dap\"}}

An editor starts this command and speaks the Debug Adapter Protocol on its standard input and
output. Its configuration names the process (`endpoint`: a pid, a script's name, unix:PATH,
HOST:PORT/PID; or `processId`) and how it is debugged: docs/editors.md. Breakpoints are deleted
when the editor disconnects. --listen prints the port and a token, which a configuration names as
`adapterToken`.")]
pub(crate) struct DapArguments {
    /// Listen on a loopback address and port (0: a free one)
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
}
