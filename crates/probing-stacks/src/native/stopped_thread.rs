//! A thread that the kernel has stopped, with its registers and stack of that moment.
//!
//! Python's frames are read as soon as we hear of it, when the thread may have gone on already.

use std::time::Instant;

use probing_process::procfs::maps;

use crate::consistency::Reading;
use crate::error::StackError;
use crate::kernel_threads::State;
use crate::memory::Bounded;
use crate::native::register_snapshot::{Pose, StackCopy};
use crate::native::registers::Registers;
use crate::native::{Modules, Name, Naming, NativeReader, View, unwind};
use crate::python::frames::Chain;
use crate::python::thread_states::Thread;
use crate::snapshot::{MAX_READ, MatchedThread, Reader, stacks};
use crate::{Caught, FrameGap, Gil, Options, ThreadStack};

/// How often Python's frames are read: the thread may be between two stores that belong together.
const TRIES: usize = 5;

impl Reader {
    /// Gets ready for threads that will be caught: then each moment counts.
    pub fn expect_caught(&mut self) -> Result<(), StackError> {
        let memory = Bounded::new(&*self.source, MAX_READ);
        self.native.known = self.threads(&memory, &options())?;
        let maps = maps::read_maps(self.source.pid()).unwrap_or_default();
        self.native.loaded.refresh(&maps);
        Ok(())
    }

    /// The stack of a thread that was caught: native calls as they were, Python's as they are now; and when that was.
    pub fn caught(&mut self, caught: &Caught) -> Result<(ThreadStack, Instant), StackError> {
        let memory = Bounded::new(&*self.source, MAX_READ);
        let options = options();
        // Listing them takes a while, in which the thread goes on.
        let is_it = |known: &&MatchedThread| known.tid == Some(caught.tid);
        if !self.native.known.iter().any(|known| is_it(&known)) {
            self.native.known = self.threads(&memory, &options)?;
        }
        // None for one that never ran Python.
        let its: Vec<MatchedThread> = self.native.known.iter().filter(is_it).cloned().collect();
        let threads: Vec<Thread> = its.iter().map(|known| known.thread.clone()).collect();
        let reading = Reading::new(&self.interpreter, &memory, &options, Instant::now());
        let pid = self.source.pid();
        let mut scene = NativeReader {
            pid,
            reading: &reading,
            maps: Vec::new(),
        };
        // First: each moment counts.
        let mut near = None;
        for _ in 0..TRIES {
            let (chains, newest) = scene.python(&threads);
            scene.load(&mut self.codes, &chains);
            let mut all = chains.iter();
            if all.all(|chain| reading.is_possible(&self.codes, chain)) {
                near = Some((chains, newest));
                break;
            }
        }
        let (is_near, read_at) = (near.is_some(), Instant::now());
        let (chains, newest) = near.unwrap_or_else(|| {
            let chains = vec![Chain::default(); threads.len()];
            (chains, vec![0; threads.len()])
        });
        let view = View {
            pose: pose(caught),
            chains,
            newest,
            call: None,
        };
        let mut found = stacks(&*self.source, &reading, &mut self.codes, its).0;
        let mut stack = found.pop().unwrap_or_else(|| unknown(caught.tid));
        stack.is_main = caught.tid == pid.0;
        scene.maps = maps::read_maps(pid).unwrap_or_default();
        self.native.loaded.refresh(&scene.maps);
        let mut modules = Modules {
            pid,
            memory: &memory,
            loaded: &mut self.native.loaded,
        };
        let calls = unwind::follow(&mut modules, &view.pose);
        let interpreter = scene.interpreter();
        let is_shown = |name: &Name| !interpreter.is_plumbing(name);
        let addresses = calls.calls.iter().map(|call| call.address);
        let naming = Naming {
            codes: &self.codes,
            names: modules.name_all(addresses, is_shown),
            interpreter,
            listed: reading.interpreter.layout.thread.runs,
        };
        naming.fill(&mut stack, &view, &calls);
        if !is_near {
            stack.missing = FrameGap::Inner;
        }
        Ok((stack, read_at))
    }
}

/// Whoever writes is told, even if it is the probe.
fn options() -> Options {
    Options {
        probe_threads: true,
        ..Options::default()
    }
}

fn pose(caught: &Caught) -> Pose {
    let stack = caught
        .registers
        .get(crate::native::machine::STACK_POINTER)
        .copied()
        .unwrap_or(0);
    let mut registers = Registers::new(caught.pc, stack);
    for (number, value) in caught.registers.iter().enumerate() {
        registers.set(number, Some(*value));
    }
    Pose {
        registers,
        stack: StackCopy::new(stack, caught.stack.clone()),
    }
}

/// A thread that Python does not know.
fn unknown(tid: u32) -> ThreadStack {
    ThreadStack {
        tid: Some(tid),
        ident: 0,
        runs_thread: None,
        name: None,
        daemon: None,
        is_main: false,
        interpreter: -1,
        state: State::Running,
        gil: Gil::Free,
        missing: FrameGap::Nothing,
        frames: Vec::new(),
    }
}
