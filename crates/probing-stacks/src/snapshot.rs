//! Snapshots of all threads, from memory and the kernel.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use probing_process::access::source::{ExternalProcess, Kernel, Source};
use probing_process::error::ProcessError;
use probing_process::procfs::status::Status;
use probing_process::procfs::threads as kernel;
use probing_process::procfs::threads::{SyscallState, Tid};
use probing_proto::process::Pid;

use crate::consistency::{Reading, SettledStack};
use crate::error::StackError;
use crate::kernel_threads::{self, State, Task};
use crate::locals::{self, Innermost, Locals};
use crate::maps;
use crate::memory::{Bounded, Memory, Pages, Range, u64_at};
use crate::native::Native;
use crate::python::code::Codes;
use crate::python::frames::{self, Chain, FrameChainEnd, RawFrame};
use crate::python::interpreter::Interpreter;
use crate::python::objects::Objects;
use crate::python::thread_names::{self, Named};
use crate::python::thread_states::{self, Head, Thread};
use crate::{Frame, FrameGap, FrameKind, Gil, Options, Pause, Snapshot, ThreadStack};

/// What one snapshot may read, in bytes. 100 threads of 200 frames need 4 MB.
pub(crate) const MAX_READ: usize = 512 << 20;
/// The smallest piece of a thread's stack that Python maps.
pub(crate) const CHUNK: usize = 16 << 10;
/// A larger one is read page by page, as its frames are come by.
const MAX_CHUNK: u64 = 4 << 20;
/// Threads of the probe.
const OURS: [&str; 3] = ["probing", "probing-eval", "probing-cancel"];

/// Reads the stacks of one process again and again: what does not change is read once.
#[derive(Debug)]
pub struct Reader {
    pub(crate) source: Box<dyn Source>,
    pub(crate) interpreter: Interpreter,
    pub(crate) codes: Codes,
    pub(crate) native: Native,
}

impl Reader {
    /// Reads it from outside.
    pub fn open(pid: Pid) -> Result<Self, StackError> {
        Self::of(Box::new(ExternalProcess::open(pid)?))
    }

    pub fn of(source: Box<dyn Source>) -> Result<Self, StackError> {
        Ok(Self {
            interpreter: Interpreter::find(&*source)?,
            source,
            codes: Codes::default(),
            native: Native::default(),
        })
    }

    pub fn read(&mut self, options: &Options) -> Result<Snapshot, StackError> {
        let began = Instant::now();
        let options = &self.possible(options);
        self.codes.keep_small();
        let memory = Bounded::new(&*self.source, MAX_READ);
        let known = self.threads(&memory, options)?;
        let reading = Reading::new(&self.interpreter, &memory, options, began);
        let (pid, codes) = (self.source.pid(), &mut self.codes);
        let owners: Vec<(Thread, Option<u32>)> = known
            .iter()
            .map(|known| (known.thread.clone(), known.tid))
            .collect();
        let (mut threads, retried, mut paused) = stacks(&*self.source, &reading, codes, known);
        let mut without_native = 0;
        if options.native {
            threads.extend(unknown_to_python(pid, &threads));
            threads.sort_by_key(|stack| !stack.is_main);
            let added = self.native.add(pid, &reading, codes, &owners, &mut threads);
            paused = paused.max(added.paused);
            without_native = added.without;
        }
        Ok(Snapshot {
            python: self.interpreter.layout.version,
            threads,
            took: began.elapsed(),
            retried,
            paused,
            without_native,
        })
    }

    /// What can be had of what is asked for: a thread that cannot be held keeps its native calls to itself.
    pub(crate) fn possible(&self, options: &Options) -> Options {
        let mut options = options.clone();
        if !self.source.may_hold() {
            options.native = false;
            options.pause = Pause::Never;
        }
        options
    }

    /// The threads that both Python and the kernel know.
    pub(crate) fn threads(
        &self,
        memory: &impl Memory,
        options: &Options,
    ) -> Result<Vec<MatchedThread>, StackError> {
        let pid = self.source.pid();
        let Some(mut threads) = thread_states::read_threads(&self.interpreter, memory) else {
            if Status::of(&*self.source).is_none() {
                return Err(ProcessError::Ended { pid }.into());
            }
            let missing = "interpreter";
            return Err(StackError::NotInitialized { pid, missing });
        };
        let tasks = kernel_threads::list_tasks(&*self.source);
        if tasks.is_empty() {
            return Err(ProcessError::Ended { pid }.into());
        }
        let ids: HashSet<u32> = tasks.iter().map(|task| task.inner).collect();
        thread_states::find_native_ids(memory, &mut threads, &ids);
        if threads.iter().any(|thread| thread.interpreter != 0) {
            let maps = maps::read_maps(&*self.source).unwrap_or_default();
            let main = tasks.iter().find(|task| task.tid == pid.0);
            let main_id = main.map(|task| task.inner);
            thread_states::find_runners(&self.interpreter, memory, &maps, &mut threads, main_id);
        }
        let mut threads = MatchedThread::match_up(&*self.source, threads, &tasks);
        if !options.probe_threads {
            threads.retain(|known| !known.is_ours());
        }
        Ok(threads)
    }
}

/// A thread that both Python and the kernel know, if the kernel's id could be found.
#[derive(Debug, Clone)]
pub(crate) struct MatchedThread {
    pub(crate) thread: Thread,
    pub(crate) tid: Option<u32>,
    pub(crate) name: Option<String>,
}

impl MatchedThread {
    /// Leaves out what has ended.
    fn match_up(kernel: &dyn Kernel, threads: Vec<Thread>, tasks: &[Task]) -> Vec<Self> {
        let by_inner: HashMap<u32, u32> = tasks.iter().map(|t| (t.inner, t.tid)).collect();
        let orphan = orphan(kernel.pid(), &threads, &by_inner);
        let found = threads.into_iter().filter_map(|thread| {
            let tid = match thread.native_id {
                Some(id) => match by_inner.get(&id) {
                    Some(tid) => Some(*tid),
                    None if orphan == Some(thread.ident) => Some(kernel.pid().0),
                    None => return None,
                },
                None => None,
            };
            let name = tid.and_then(|tid| kernel::name(kernel, Tid(tid)));
            Some(Self { thread, tid, name })
        });
        found.collect()
    }

    fn is_ours(&self) -> bool {
        let name = self.name.as_deref();
        name.is_some_and(|name| OURS.contains(&name))
    }
}

/// The thread that must be the kernel's main one, though its id is another: in a child that was forked below libc, neither
/// Python nor libc knows of that. It is the only one whose id is of no thread here, and nobody else is the main one.
fn orphan(pid: Pid, threads: &[Thread], by_inner: &HashMap<u32, u32>) -> Option<u64> {
    let ids = threads.iter().filter_map(|thread| thread.native_id);
    if ids
        .filter_map(|id| by_inner.get(&id))
        .any(|tid| *tid == pid.0)
    {
        return None;
    }
    let is_stale = |thread: &&Thread| {
        let id = thread.native_id.filter(|id| *id != 0);
        id.is_some_and(|id| !by_inner.contains_key(&id))
    };
    let idents: HashSet<u64> = threads.iter().filter(is_stale).map(|t| t.ident).collect();
    let mut idents = idents.into_iter();
    idents.next().filter(|_| idents.next().is_none())
}

/// Reads all threads at once, twice; those that differ or run are settled one by one.
pub(crate) fn stacks<M: Memory + ?Sized>(
    kernel: &dyn Kernel,
    reading: &Reading<'_, M>,
    codes: &mut Codes,
    known: Vec<MatchedThread>,
) -> (Vec<ThreadStack>, u32, Duration) {
    let threads: Vec<Thread> = known.iter().map(|known| known.thread.clone()).collect();
    let (heads, chains) = read_all(reading, &threads);
    let (heads_again, chains_again) = read_all(reading, &threads);
    let holders = thread_states::holders(reading.interpreter, reading.memory, &threads);
    codes.forget_failures();
    let frames = chains.iter().flat_map(|chain| &chain.frames);
    codes.load(
        reading.interpreter,
        reading.memory,
        frames.map(|frame| frame.code),
    );
    let stopped = kernel_threads::is_stopped(kernel);
    let mut found = Vec::new();
    for (index, known) in known.into_iter().enumerate() {
        let place = known.tid.map_or(SyscallState::Other, |tid| {
            SyscallState::of(kernel, Tid(tid))
        });
        let (head, chain) = (heads[index], &chains[index]);
        let stood_still = head == heads_again[index] && *chain == chains_again[index];
        let rests = stopped || (known.tid.is_some() && place != SyscallState::Running);
        let settled = match head {
            Some(_) if stood_still && rests && reading.is_possible(codes, chain) => SettledStack {
                chain: chain.clone(),
                torn: false,
                retried: 0,
                paused: Duration::ZERO,
            },
            _ => reading.settle(
                codes,
                &known.thread,
                known.tid,
                head.unwrap_or_default(),
                [chain, &chains_again[index]],
            ),
        };
        found.push(SettledThread {
            is_main: known.tid == Some(kernel.pid().0),
            state: if stopped {
                State::Stopped
            } else {
                place.into()
            },
            gil: match () {
                () if holders[index] => Gil::Holds,
                () if kernel_threads::waits_for(place, known.thread.gil) => Gil::Waits,
                () => Gil::Free,
            },
            known,
            settled,
        });
    }
    let retried = found.iter().map(|found| found.settled.retried).sum();
    let paused = found.iter().map(|found| found.settled.paused).max();
    let stacks = SettledThread::name_all(found, reading, codes);
    (merged(stacks), retried, paused.unwrap_or_default())
}

/// A thread whose frames are known by their addresses.
struct SettledThread {
    known: MatchedThread,
    settled: SettledStack,
    is_main: bool,
    state: State,
    gil: Gil,
}

impl SettledThread {
    /// Adds what the objects of the target tell.
    fn name_all<M: Memory + ?Sized>(
        all: Vec<Self>,
        reading: &Reading<'_, M>,
        codes: &Codes,
    ) -> Vec<ThreadStack> {
        let mut objects = Objects::new(reading.interpreter, reading.memory);
        let chains: Vec<&Chain> = all.iter().map(|found| &found.settled.chain).collect();
        let names = thread_names::of_all(&mut objects, codes, &chains);
        let frames = chains.iter().flat_map(|chain| chain.frames.iter().copied());
        let frames: Vec<RawFrame> = frames.collect();
        let innermost = all.iter().filter_map(|found| {
            let frame = found.settled.chain.frames.first()?;
            Some((frame.address, found.state == State::Running))
        });
        let innermost = innermost.collect();
        let mut locals = reading.locals(&frames, &innermost).into_iter();
        all.into_iter()
            .zip(names)
            .map(|(found, named)| found.named(named, codes, &mut locals))
            .collect()
    }

    fn named(
        self,
        named: Named,
        codes: &Codes,
        locals: &mut impl Iterator<Item = Option<Locals>>,
    ) -> ThreadStack {
        ThreadStack {
            tid: self.known.tid,
            ident: self.known.thread.ident,
            // The main thread is no `Thread` that was started.
            runs_thread: named.name.clone().filter(|_| self.is_main),
            name: named.name.or(self.known.name),
            // The main thread's object cannot be found from its frames; it never is one.
            daemon: if self.is_main {
                Some(false)
            } else {
                named.daemon
            },
            is_main: self.is_main,
            interpreter: self.known.thread.interpreter,
            state: self.state,
            gil: self.gil,
            missing: match self.settled.chain.end {
                _ if self.settled.torn => FrameGap::Inner,
                FrameChainEnd::Outermost => FrameGap::Nothing,
                FrameChainEnd::TooDeep | FrameChainEnd::Broken => FrameGap::Outer,
            },
            frames: name_all(codes, &self.settled.chain.frames, locals),
        }
    }
}

impl<M: Memory + ?Sized> Reading<'_, M> {
    /// The locals of all these frames, if they are wanted.
    pub(crate) fn locals(&self, frames: &[RawFrame], innermost: &Innermost) -> Vec<Option<Locals>> {
        let Some(limits) = &self.locals else {
            return Vec::new();
        };
        locals::of_all(self.interpreter, self.memory, frames, innermost, limits)
    }
}

/// Threads of libraries, which never ran Python. Not the probe's.
fn unknown_to_python(pid: Pid, known: &[ThreadStack]) -> Vec<ThreadStack> {
    let is_known = |tid: u32| known.iter().any(|stack| stack.tid == Some(tid));
    let stopped = kernel_threads::is_stopped(&pid);
    let others = kernel::thread_ids(pid).unwrap_or_default().into_iter();
    others
        .filter(|tid| !is_known(tid.0))
        .filter_map(|tid| {
            let name = kernel::name(pid, tid).filter(|name| !OURS.contains(&&**name))?;
            let place = SyscallState::of(pid, tid);
            Some(ThreadStack {
                tid: Some(tid.0),
                ident: 0,
                runs_thread: None,
                name: Some(name),
                daemon: None,
                is_main: tid.0 == pid.0,
                interpreter: -1,
                state: if stopped {
                    State::Stopped
                } else {
                    place.into()
                },
                gil: Gil::Free,
                missing: FrameGap::Nothing,
                frames: Vec::new(),
            })
        })
        .collect()
}

/// Where all threads are, and their frames.
pub(crate) fn read_all<M: Memory + ?Sized>(
    reading: &Reading<'_, M>,
    threads: &[Thread],
) -> (Vec<Option<Head>>, Vec<Chain>) {
    let heads = thread_states::heads(reading.interpreter, reading.memory, threads);
    let mut pages = Pages::default();
    let chunks = heads.iter().flatten().map(|head| head.chunk);
    load_chunks(reading.memory, &mut pages, chunks.collect());
    let starts: Vec<u64> = heads
        .iter()
        .map(|head| head.map_or(0, |head| head.frame))
        .collect();
    let layout = &reading.interpreter.layout;
    let chains = frames::walk(
        layout,
        reading.memory,
        &mut pages,
        &starts,
        reading.max_depth,
    );
    (heads, chains)
}

/// Loads the pieces of stack of all threads: each starts with the address of the one before and its own size.
fn load_chunks(memory: &(impl Memory + ?Sized), pages: &mut Pages, newest: Vec<u64>) {
    let (mut wave, mut seen) = (newest, HashSet::new());
    loop {
        wave.retain(|chunk| *chunk != 0 && seen.insert(*chunk));
        if wave.is_empty() {
            return;
        }
        let ranges: Vec<Range> = wave.iter().map(|chunk| (*chunk, CHUNK)).collect();
        pages.load(memory, &ranges);
        let (mut next, mut larger) = (Vec::new(), Vec::new());
        for chunk in wave {
            let mut header = [0; 16];
            pages.copy(chunk, &mut header);
            let (previous, size) = (u64_at(&header, 0), u64_at(&header, 8));
            next.extend(previous);
            let rest = size.filter(|size| *size <= MAX_CHUNK).unwrap_or(0);
            if let Some(len) = (rest as usize).checked_sub(CHUNK).filter(|len| *len > 0) {
                larger.push((chunk.saturating_add(CHUNK as u64), len));
            }
        }
        pages.load(memory, &larger);
        wave = next;
    }
}

/// Takes the locals of as many frames as there are.
pub(crate) fn name_all(
    codes: &Codes,
    frames: &[RawFrame],
    locals: &mut impl Iterator<Item = Option<Locals>>,
) -> Vec<Frame> {
    let mut lines: HashMap<(u64, i64), Option<u32>> = HashMap::new();
    // A function that calls itself does so at one place.
    let mut latest = None;
    let named = frames.iter().filter_map(|frame| {
        let locals = locals.next().flatten();
        let code = codes.get(frame.code)?;
        let place = (frame.code, frame.offset);
        let line = match latest {
            Some((known, line)) if known == place => line,
            _ => *lines
                .entry(place)
                .or_insert_with(|| code.place(frame.offset).line()),
        };
        latest = Some((place, line));
        Some(Frame {
            func: code.name.clone(),
            file: code.file.clone(),
            line,
            source_file: None,
            address: frame.address,
            is_entry: frame.is_entry,
            more_locals: locals.as_ref().map_or(0, |locals| locals.more),
            locals: locals.map(|locals| locals.shown),
            kind: FrameKind::Python,
        })
    });
    named.collect()
}

/// Makes one of what several interpreters know of the same thread: the younger interpreter was called by the older.
fn merged(stacks: Vec<ThreadStack>) -> Vec<ThreadStack> {
    let mut merged: Vec<ThreadStack> = Vec::new();
    for mut stack in stacks {
        let known = merged
            .iter_mut()
            .find(|known| stack.tid.is_some() && known.tid == stack.tid);
        let Some(known) = known else {
            merged.push(stack);
            continue;
        };
        if stack.gil != Gil::Free {
            known.gil = stack.gil;
        }
        if stack.missing != FrameGap::Nothing {
            known.missing = stack.missing;
        }
        if !stack.frames.is_empty() {
            known.interpreter = stack.interpreter;
            stack.frames.append(&mut known.frames);
            known.frames = stack.frames;
        }
    }
    merged.sort_by_key(|stack| !stack.is_main);
    merged
}
