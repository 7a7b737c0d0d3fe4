//! An agent that is started over SSH for one connection, and listens nowhere.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use crate::probe::socket_path;

/// What is run there. The shell's own process becomes it, and its end is the end of both.
const REMOTE: &str = "exec probing agent --stdio";
/// Seconds for which a login is used again.
const PERSIST: u32 = 30;
/// Of a socket's path, with what SSH puts behind it while it makes one.
const LONGEST_PATH: usize = 107 - 40 - 17;

/// The conversation, and who carries it. What SSH has to say or to ask, it says to the user.
pub(crate) fn start(destination: &str, port: Option<u16>) -> io::Result<(UnixStream, Child)> {
    let (near, far) = UnixStream::pair()?;
    let mut command = Command::new("ssh");
    command.arg("-T");
    if let Some(port) = port {
        command.args(["-p", &port.to_string()]);
    }
    // A command has several things to say, and another may follow.
    let folder = socket_path::our_runtime_dirs().into_iter().next();
    let folder = folder.map(|folder| folder.join("ssh-"));
    let folder = folder.filter(|folder| folder.as_os_str().len() < LONGEST_PATH);
    if let Some(folder) = folder {
        command.args(["-o", "ControlMaster=auto", "-o"]);
        command.arg(format!("ControlPath={}%C", folder.display()));
        command.args(["-o", &format!("ControlPersist={PERSIST}")]);
    }
    command.args(["--", destination, REMOTE]);
    let child = command
        .stdin(OwnedFd::from(far.try_clone()?))
        .stdout(OwnedFd::from(far))
        .spawn()?;
    Ok((near, child))
}
