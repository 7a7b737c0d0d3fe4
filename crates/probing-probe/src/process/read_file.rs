//! Reads files of this process for a client: what the kernel says of it, and the files whose code it runs.
//!
//! No others: reading one that lies on another machine might take for ever, and the thread that serves everybody waits.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};

use probing_proto::message::Failure;
use probing_proto::message::reads::{FileCall, MAX_READ, Pieces};

/// Files of a process, and of a thread.
const OF_PROCESS: [&str; 3] = ["maps", "stat", "status"];
const OF_THREAD: [&str; 4] = ["stat", "status", "comm", "syscall"];

pub(crate) fn read(asked: &FileCall) -> Result<(Pieces, Vec<u8>), Failure> {
    let bytes = match asked.file.as_str() {
        "task" => names("/proc/self/task"),
        name if is_kernels(name) => part(&format!("/proc/self/{name}"), asked),
        path if is_run(path) => part(path, asked),
        other => {
            return Err(Failure::new(format!("not a readable file: {other}")));
        }
    };
    let bytes =
        bytes.map_err(|error| Failure::new(format!("cannot read {}: {error}", asked.file)))?;
    let lengths = vec![Some(bytes.len())];
    Ok((Pieces { lengths }, bytes))
}

fn is_kernels(name: &str) -> bool {
    let of_thread = |name: &str| {
        let (id, file) = name.strip_prefix("task/")?.split_once('/')?;
        Some(id.parse::<u32>().is_ok() && OF_THREAD.contains(&file))
    };
    OF_PROCESS.contains(&name) || of_thread(name) == Some(true)
}

/// Whether the code of this file is mapped: then it is at hand.
fn is_run(path: &str) -> bool {
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let has_it = |line: &str| {
        let mut fields = line.splitn(6, ' ');
        let is_code = fields.nth(1).is_some_and(|rights| rights.contains('x'));
        is_code
            && fields
                .nth(3)
                .is_some_and(|found| found.trim_start() == path)
    };
    path.starts_with('/') && maps.lines().any(has_it)
}

fn names(folder: &str) -> io::Result<Vec<u8>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend_from_slice(entry?.file_name().as_encoded_bytes());
        names.push(b'\n');
    }
    Ok(names)
}

fn part(path: &str, asked: &FileCall) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    if asked.at > 0 {
        file.seek(SeekFrom::Start(asked.at))?;
    }
    let mut bytes = Vec::new();
    file.take(asked.len.min(MAX_READ) as u64)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
