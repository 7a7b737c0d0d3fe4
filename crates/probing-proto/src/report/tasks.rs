//! What `--tasks --json` prints.

use serde::{Deserialize, Serialize};

use crate::process::Pid;
use crate::report::ReportedFrame;

/// What `probing backtrace --tasks --json` prints of a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TasksReport {
    pub pid: Pid,
    /// `3.12`
    pub python: String,
    /// Whether the program has imported asyncio.
    pub asyncio: bool,
    /// Those that are not done, in the order of their names.
    pub tasks: Vec<ReportedTask>,
    /// False when there are more tasks than these.
    pub complete: bool,
    /// Ids of tasks that wait for each other in a circle, a deadlock.
    pub deadlocks: Vec<Vec<u64>>,
    pub took_seconds: f64,
    /// What a user should know about how they were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A task of asyncio.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedTask {
    pub name: String,
    /// Python's `id(task)`.
    pub id: u64,
    pub state: TaskProgress,
    /// The function that it runs.
    pub coroutine: String,
    /// Ids of the tasks that wait for it.
    pub awaited_by: Vec<u64>,
    pub waits_for: Option<ReportedWait>,
    /// The kernel's id of the thread of its loop.
    pub thread_id: Option<u32>,
    pub thread_name: Option<String>,
    /// False when it changed each time it was read: then only the frames that stayed are here.
    pub complete: bool,
    /// Innermost first: the coroutines that it awaits. Of a task that runs, the functions that they call, too.
    pub frames: Vec<ReportedFrame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskProgress {
    /// Its code runs now, or blocks its thread and so all tasks of its loop.
    Running,
    Waiting,
    /// It resumes, or begins, when its loop comes to it.
    Ready,
}

/// What a task waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedWait {
    pub kind: WaitKind,
    /// Ids of tasks that are not done.
    pub tasks: Vec<u64>,
    /// For a lock: ids of tasks that are inside its `async with`.
    pub held_by: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    Sleep,
    Lock,
    Event,
    Condition,
    Semaphore,
    Barrier,
    /// An item of a queue.
    QueueGet,
    /// Room in a queue.
    QueuePut,
    /// That all items of a queue are done.
    QueueJoin,
    Task,
    Gather,
    TaskGroup,
    /// `asyncio.wait`: one of the tasks, or all.
    Any,
    Shield,
    /// Work in a thread of an executor.
    Thread,
    Stream,
    Socket,
    Process,
    /// Nothing says what it stands for.
    Future,
}
