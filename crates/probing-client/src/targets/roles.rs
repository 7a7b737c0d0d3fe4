//! The role of a process in its program: launcher of ranks, data loader, or child of another Python process.

use std::collections::{HashMap, HashSet};

use probing_process::procfs::processes::Process;
use probing_process::read_text;
use probing_proto::process::Pid;
use probing_proto::report::ProcessRole;

/// Programs that start others, with their scripts among the arguments.
const LAUNCHERS: [&str; 4] = ["torchrun", "accelerate", "deepspeed", "horovodrun"];
const LAUNCHER_MODULES: [&str; 4] = [
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.launch",
];
/// What torch calls the processes of a `DataLoader`.
const DATA_WORKER: &str = "pt_data_worker";

/// The role of each, in their order.
pub(crate) fn roles(processes: &[Process]) -> Vec<Option<ProcessRole>> {
    let parents: HashSet<Pid> = processes.iter().map(|it| it.stat.parent).collect();
    let launches: HashMap<Pid, bool> = processes
        .iter()
        .map(|it| (it.pid, parents.contains(&it.pid) && launches(&it.command)))
        .collect();
    let role = |process: &Process| {
        if launches.get(&process.pid) == Some(&true) {
            return Some(ProcessRole::Launcher);
        }
        if is_data_worker(process.pid) {
            return Some(ProcessRole::Worker);
        }
        // What a launcher started is the program itself.
        let is_child = launches.get(&process.stat.parent) == Some(&false);
        is_child.then_some(ProcessRole::Child)
    };
    processes.iter().map(role).collect()
}

/// Leaves out those that a name is not meant for: their command line has the name of a program that they only serve.
pub(crate) fn retain_programs(processes: &mut Vec<Process>) {
    let mut serve = roles(processes)
        .into_iter()
        .map(|role| matches!(role, Some(ProcessRole::Launcher | ProcessRole::Worker)));
    processes.retain(|_| !serve.next().unwrap_or_default());
}

fn is_data_worker(pid: Pid) -> bool {
    read_text(pid, "comm").is_some_and(|comm| comm.trim_end() == DATA_WORKER)
}

/// Whether a command line is that of a launcher, by its own name or through Python.
fn launches(command: &[String]) -> bool {
    let is_launcher = |word: &String| {
        let name = word.rsplit('/').next();
        name.is_some_and(|name| LAUNCHERS.contains(&name))
    };
    let mut words = command.iter();
    if words.next().is_some_and(is_launcher) {
        return true;
    }
    while let Some(word) = words.next() {
        match word.as_str() {
            "-m" => {
                return words
                    .next()
                    .is_some_and(|name| LAUNCHER_MODULES.contains(&&**name));
            }
            // Options that have an argument.
            "-X" | "-W" => {
                words.next();
            }
            option if option.starts_with('-') => {}
            _ => return is_launcher(word),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_is_known_by_its_own_name_and_not_by_its_arguments() {
        let check = |line: &str, expected| {
            let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(launches(&command), expected, "{line}");
        };
        check("/usr/bin/python /env/bin/torchrun --standalone hf.py", true);
        check("python -X dev -m torch.distributed.run hf.py", true);
        check("python -m torch.distributed.run hf.py", true);
        check("python -u /env/bin/accelerate launch hf.py", true);
        check("torchrun hf.py", true);
        check("python hf.py torchrun", false);
        check("python -m hf -m torch.distributed.run", false);
        check("python hf.py", false);
    }
}
