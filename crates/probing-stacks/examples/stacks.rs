//! Prints the Python stacks of a process: `stacks PID [READINGS [locals]]`.
#![expect(clippy::disallowed_methods, reason = "an example for developers")]

use std::error::Error;
use std::io::{self, BufWriter, Write as _};

use probing_proto::process::Pid;
use probing_stacks::{LocalLimits, Options, Reader};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let pid: Pid = arguments.next().ok_or("which process?")?.parse()?;
    let readings: usize = arguments.next().map_or(Ok(1), |count| count.parse())?;
    let began = std::time::Instant::now();
    let mut reader = Reader::open(pid)?;
    let opened = began.elapsed();
    let options = Options {
        locals: arguments.next().map(|_| LocalLimits::default()),
        ..Options::default()
    };
    let mut out = BufWriter::new(io::stdout().lock());
    for _ in 1..readings {
        let snapshot = reader.read(&options)?;
        writeln!(out, "{:?}, {} again", snapshot.took, snapshot.retried)?;
    }
    let snapshot = reader.read(&options)?;
    let (major, minor) = snapshot.python;
    writeln!(
        out,
        "Python {major}.{minor}, opened in {opened:?}, read in {:?}",
        snapshot.took
    )?;
    for thread in &snapshot.threads {
        let name = thread.name.as_deref().unwrap_or("?");
        writeln!(
            out,
            "\n{name} {:?} {:?}, GIL: {:?}, missing: {:?}",
            thread.tid, thread.state, thread.gil, thread.missing
        )?;
        for frame in &thread.frames {
            let line = frame
                .line
                .map_or_else(|| "?".to_owned(), |line| line.to_string());
            writeln!(out, "    {}  {}:{line}", frame.func, frame.file.display())?;
            for local in frame.locals.iter().flatten() {
                let kind = local.kind.as_deref().unwrap_or("?");
                writeln!(out, "        {}: {kind} = {}", local.name, local.value)?;
            }
        }
    }
    Ok(out.flush()?)
}
