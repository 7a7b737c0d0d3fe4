//! The asyncio tasks of a target, read from outside.

use probing_proto::process::Pid;
use probing_proto::report::{ReportedTask, ReportedWait, TaskProgress, TasksReport, WaitKind};
use probing_stacks::{AsyncTask, TaskState, WaitKind as Kind};

use crate::error::ClientError;
use crate::stacks::{self, LocalStacks, Sources};

impl LocalStacks {
    pub(crate) fn tasks(&mut self) -> Result<TasksReport, ClientError> {
        let read = self.access.reader.tasks(&self.options);
        let found = self.access.checked(read)?;
        let ((major, minor), pid) = (found.python, self.access.pid);
        let own_pid = self.access.own_pid;
        let tasks = found.tasks.iter();
        Ok(TasksReport {
            pid,
            python: format!("{major}.{minor}"),
            asyncio: found.is_imported,
            tasks: tasks
                .map(|task| reported(own_pid, task, &mut self.sources))
                .collect(),
            complete: !found.is_cut,
            deadlocks: found.circles,
            took_seconds: found.took.as_secs_f64(),
            notes: self.access.note().into_iter().collect(),
        })
    }
}

fn reported(pid: Pid, task: &AsyncTask, sources: &mut Sources) -> ReportedTask {
    let thread = task.thread.as_ref();
    let thread_id = thread.and_then(|(id, _)| *id);
    let is_main = thread_id == Some(pid.0);
    ReportedTask {
        name: task.name.clone(),
        id: task.id,
        state: match task.state {
            TaskState::Running => TaskProgress::Running,
            TaskState::Waiting => TaskProgress::Waiting,
            TaskState::Ready => TaskProgress::Ready,
        },
        coroutine: task.coroutine.to_string(),
        awaited_by: task.awaited_by.clone(),
        waits_for: task.wait.as_ref().map(|wait| ReportedWait {
            kind: kind(wait.kind),
            tasks: wait.tasks.clone(),
            held_by: wait.held_by.clone(),
        }),
        thread_id,
        thread_name: if is_main {
            Some(stacks::MAIN.to_owned())
        } else {
            thread.and_then(|(_, name)| name.clone())
        },
        complete: task.complete,
        frames: sources.frames(task.frames.clone()),
    }
}

fn kind(kind: Kind) -> WaitKind {
    match kind {
        Kind::Sleep => WaitKind::Sleep,
        Kind::Lock => WaitKind::Lock,
        Kind::Event => WaitKind::Event,
        Kind::Condition => WaitKind::Condition,
        Kind::Semaphore => WaitKind::Semaphore,
        Kind::Barrier => WaitKind::Barrier,
        Kind::QueueGet => WaitKind::QueueGet,
        Kind::QueuePut => WaitKind::QueuePut,
        Kind::QueueJoin => WaitKind::QueueJoin,
        Kind::Task => WaitKind::Task,
        Kind::Gather => WaitKind::Gather,
        Kind::TaskGroup => WaitKind::TaskGroup,
        Kind::Any => WaitKind::Any,
        Kind::Shield => WaitKind::Shield,
        Kind::Thread => WaitKind::Thread,
        Kind::Stream => WaitKind::Stream,
        Kind::Socket => WaitKind::Socket,
        Kind::Process => WaitKind::Process,
        Kind::Future => WaitKind::Future,
    }
}
