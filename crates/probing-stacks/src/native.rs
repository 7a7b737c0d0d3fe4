//! Adds native frames to Python's stacks, in true order.
//!
//! The story, in the order of the files: of each thread, registers and native stack are copied together with its Python
//! frames (`pose`); its calls are followed over the copy (`unwind`) by the tables of the files whose code it runs
//! (`modules`, `table`, `registers`, `machine`); Python's frames are put in where they belong (`weave`); functions get
//! their names (`names`) and lines (`source_lines`), and those that say nothing are left out (`plumbing`). A thread that
//! somebody else has caught in the act (`caught`) is told the same way.
//!
//! *Invariant:* what is shown in an order was in that order. What cannot be followed is missing, and said to be.

#[cfg(test)]
mod hostile;
mod interleave;
pub(crate) mod machine;
mod modules;
mod names;
mod plumbing;
mod register_snapshot;
pub(crate) mod registers;
mod source_lines;
mod stopped_thread;
mod table;
mod unwind;

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use probing_process::memory::Memory;
use probing_process::proc;
use probing_process::procfs::maps::{self, Mapping};
use probing_process::procfs::threads::Tid;
use probing_proto::process::Pid;

use self::interleave::{Piece, Run};
use self::modules::{Loaded, Modules, Name};
use self::plumbing::Interpreter;
use self::register_snapshot::{Pose, SleepState, StackCopy};
use self::unwind::{Calls, CallsEnd};
use crate::consistency::Reading;
use crate::held::{Expected, InTime, NoMore};
use crate::python::code::Codes;
use crate::python::frames::{Chain, FrameChainEnd};
use crate::python::layout::Runs;
use crate::python::thread_states::Thread;
use crate::snapshot::{MatchedThread, name_all, read_all};
use crate::{Frame, FrameGap, FrameKind, ThreadStack, thread_hold};

/// How often a thread is held: it may be caught between two stores that belong together.
const HOLDS: usize = 5;
/// For a thread to stop: on a busy machine it first has to be given a CPU.
const STOP_TIMEOUT: Duration = Duration::from_millis(300);
/// How often a thread that wakes up now and then is looked at.
const LOOKS: usize = 3;
/// The function in which the interpreter runs Python.
const LOOP: &str = "_PyEval_EvalFrameDefault";

/// What is kept from one reading to the next.
#[derive(Debug, Default)]
pub(crate) struct Native {
    loaded: Loaded,
    /// Threads, as they were when they were last listed.
    known: Vec<MatchedThread>,
}

/// What it took to add native frames.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Added {
    /// The longest that a thread was held.
    pub(crate) paused: Duration,
    /// Threads of which none could be read.
    pub(crate) without: usize,
}

/// A thread for the kernel, with what each interpreter knows of it.
struct Subject {
    tid: Option<Tid>,
    threads: Vec<Thread>,
}

/// A thread at one moment.
struct View {
    pose: Pose,
    /// Of each interpreter.
    chains: Vec<Chain>,
    /// The newest run of each, where it is listed.
    newest: Vec<u64>,
    /// The system call that it sleeps in.
    call: Option<i64>,
}

/// What came of reading a thread without holding it.
enum UnheldReading {
    /// It runs, or did meanwhile.
    Moves,
    /// It rests, but its memory says nothing that can be.
    Unclear,
    Still(Box<View>),
}

/// What one reading works with.
struct NativeReader<'a, M: ?Sized> {
    pid: Pid,
    reading: &'a Reading<'a, M>,
    maps: Vec<Mapping>,
}

impl Native {
    /// Puts native frames into the stacks of threads. `known` are Python's threads with the kernel's ids.
    ///
    pub(crate) fn add<M: Memory + ?Sized>(
        &mut self,
        pid: Pid,
        reading: &Reading<'_, M>,
        codes: &mut Codes,
        known: &[(Thread, Option<u32>)],
        stacks: &mut [ThreadStack],
    ) -> Added {
        let maps = maps::read_maps(pid).unwrap_or_default();
        self.loaded.refresh(&maps);
        let scene = NativeReader { pid, reading, maps };
        let mut modules = Modules {
            pid,
            memory: reading.memory,
            loaded: &mut self.loaded,
        };
        let subjects: Vec<Subject> = stacks
            .iter()
            .map(|stack| Subject::of(stack, known))
            .collect();
        let glimpses = scene.glimpses(&subjects, codes);
        let (mut found, mut paused) = (Vec::new(), Duration::ZERO);
        for (subject, glimpse) in subjects.iter().zip(glimpses) {
            let mut follow = |view: View| {
                let calls = unwind::follow(&mut modules, &view.pose);
                (view, calls)
            };
            let (moves, mut seen) = match scene.patiently(subject, glimpse, codes) {
                UnheldReading::Moves => (true, None),
                UnheldReading::Unclear => (false, None),
                UnheldReading::Still(view) => (false, Some(follow(*view))),
            };
            if moves || seen.as_ref().is_some_and(needs_registers) {
                let (held, took) = scene.hold(subject, codes);
                paused = paused.max(took);
                seen = held.map(follow).or(seen);
            }
            found.push(seen);
        }
        let calls = found.iter().flatten().flat_map(|(_, calls)| &calls.calls);
        let interpreter = scene.interpreter();
        let is_shown = |name: &Name| !interpreter.is_plumbing(name);
        let naming = Naming {
            codes,
            names: modules.name_all(calls.map(|call| call.address), is_shown),
            interpreter,
            listed: reading.interpreter.layout.thread.runs,
        };
        let without = found.iter().filter(|found| found.is_none()).count();
        for (stack, found) in stacks.iter_mut().zip(found) {
            match found {
                Some((view, calls)) => naming.fill(stack, &view, &calls),
                None => stack.missing = FrameGap::Native,
            }
        }
        Added { paused, without }
    }
}

/// Whether it takes the registers of a held thread to go on, and a stop does no harm.
fn needs_registers((view, calls): &(View, Calls)) -> bool {
    let disturbed = view.call.is_some_and(thread_hold::ends_by_a_stop);
    calls.end == CallsEnd::UnknownRegister && !disturbed
}

impl Subject {
    fn of(stack: &ThreadStack, known: &[(Thread, Option<u32>)]) -> Self {
        let its = known
            .iter()
            .filter(|(_, tid)| tid.is_some() && *tid == stack.tid);
        Self {
            tid: stack.tid.map(Tid),
            threads: its.map(|(thread, _)| thread.clone()).collect(),
        }
    }

    fn idents(&self) -> Vec<u64> {
        self.threads.iter().map(|thread| thread.ident).collect()
    }
}

impl<M: Memory + ?Sized> NativeReader<'_, M> {
    /// All threads, as far as they can be read without holding them.
    fn glimpses(&self, subjects: &[Subject], codes: &mut Codes) -> Vec<UnheldReading> {
        let rest = |subject: &Subject| SleepState::of(self.pid, subject.tid?);
        let before: Vec<Option<SleepState>> = subjects.iter().map(rest).collect();
        let extents: Vec<_> = subjects
            .iter()
            .zip(&before)
            .map(|(subject, rest)| {
                register_snapshot::extent(&self.maps, rest.as_ref()?.stack, &subject.idents())
            })
            .collect();
        let copies = register_snapshot::copies(self.reading.memory, &extents);
        let threads: Vec<Thread> = subjects
            .iter()
            .flat_map(|subject| subject.threads.iter().cloned())
            .collect();
        let (chains, newest) = self.python(&threads);
        self.load(codes, &chains);
        let mut python = chains.into_iter().zip(newest);
        let mut glimpses = Vec::new();
        for ((subject, before), copy) in subjects.iter().zip(before).zip(copies) {
            let (chains, newest): (Vec<Chain>, Vec<u64>) =
                python.by_ref().take(subject.threads.len()).unzip();
            let stayed = before.filter(|before| rest(subject).as_ref() == Some(before));
            glimpses.push(match (stayed, copy) {
                (None, _) => UnheldReading::Moves,
                (Some(_), None) => UnheldReading::Unclear,
                (Some(rest), Some(stack)) => {
                    let registers = rest.registers();
                    let view = View {
                        pose: Pose { registers, stack },
                        chains,
                        newest,
                        call: Some(rest.call),
                    };
                    if self.is_possible(codes, &view) {
                        UnheldReading::Still(Box::new(view))
                    } else {
                        UnheldReading::Unclear
                    }
                }
            });
        }
        glimpses
    }

    /// Looks again at a thread that woke up just then and sleeps now.
    fn patiently(
        &self,
        subject: &Subject,
        mut glimpse: UnheldReading,
        codes: &mut Codes,
    ) -> UnheldReading {
        for _ in 0..LOOKS {
            let sleeps = || SleepState::of(self.pid, subject.tid?);
            if !matches!(glimpse, UnheldReading::Moves) || sleeps().is_none() {
                break;
            }
            let again = self.glimpses(slice::from_ref(subject), codes).pop();
            glimpse = again.unwrap_or(UnheldReading::Moves);
        }
        glimpse
    }

    /// A thread while it is held, and for how long that was at most.
    ///
    /// It is held to be copied, and never for long: what was not copied in time is not there.
    fn hold(&self, subject: &Subject, codes: &mut Codes) -> (Option<View>, Duration) {
        let (mut paused, idents) = (Duration::ZERO, subject.idents());
        let mut expected = Expected::new(self.reading, &subject.threads);
        let memory = self.reading.memory;
        for (hold, tid) in subject.tid.into_iter().cycle().take(HOLDS).enumerate() {
            if Instant::now() > self.reading.until {
                break;
            }
            expected.look();
            // Frames that are elsewhere each time are read on, as long as it may be held.
            let reads_on = hold + 1 == HOLDS;
            let copy = |held: &thread_hold::StoppedThread| {
                let registers = held.registers()?;
                let extent = register_snapshot::extent(&self.maps, registers.stack(), &idents);
                let stack = register_snapshot::copies(
                    memory,
                    &[extent.map(register_snapshot::whole_pages)],
                )
                .pop()??;
                let mut copied = expected.copy();
                let chains = reads_on.then(|| {
                    copied.add(stack.pages());
                    expected.chains(&mut copied, &InTime { memory, held })
                });
                let pose = Pose { registers, stack };
                (!held.is_late()).then_some((pose, copied, chains))
            };
            let Some((copy, took)) = thread_hold::while_stopped(tid.0, STOP_TIMEOUT, copy) else {
                break;
            };
            paused = paused.max(took);
            let Some((pose, mut copied, chains)) = copy else {
                continue; // let go, and held again
            };
            let chains = chains.unwrap_or_else(|| {
                copied.add(pose.stack.pages());
                expected.chains(&mut copied, &NoMore)
            });
            let view = View {
                pose,
                chains,
                newest: copied.newest(),
                call: None,
            };
            self.load(codes, &view.chains);
            if self.is_possible(codes, &view) {
                return (Some(view), paused);
            }
        }
        (None, paused)
    }

    /// The frames of Python, and the newest run of each thread where that is listed.
    fn python(&self, threads: &[Thread]) -> (Vec<Chain>, Vec<u64>) {
        if threads.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let (_, chains) = read_all(self.reading, threads);
        let newest = match self.reading.interpreter.layout.thread.runs {
            None => vec![0; threads.len()],
            Some(Runs { newest, .. }) => {
                let place = |thread: &Thread| (thread.address.wrapping_add(newest), 8);
                let places: Vec<_> = threads.iter().map(place).collect();
                let answers = self.reading.memory.read_many(&places).into_iter();
                let number = |bytes: Option<Vec<u8>>| probing_process::memory::u64_at(&bytes?, 0);
                answers.map(|bytes| number(bytes).unwrap_or(0)).collect()
            }
        };
        (chains, newest)
    }

    fn load(&self, codes: &mut Codes, chains: &[Chain]) {
        let frames = chains.iter().flat_map(|chain| &chain.frames);
        codes.forget_failures();
        codes.load(
            self.reading.interpreter,
            self.reading.memory,
            frames.map(|frame| frame.code),
        );
    }

    fn is_possible(&self, codes: &Codes, view: &View) -> bool {
        let mut chains = view.chains.iter();
        chains.all(|chain| self.reading.is_possible(codes, chain))
    }

    /// The files of the interpreter.
    fn interpreter(&self) -> Interpreter {
        let inside = self.reading.interpreter.types.code;
        let library = self.maps.iter().find(|mapping| mapping.contains(inside));
        let program = fs::read_link(proc(self.pid, "exe")).ok().filter(|program| {
            let name = program.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("python")
        });
        Interpreter {
            library: library.map_or_else(PathBuf::new, |mapping| PathBuf::from(&mapping.path)),
            program,
        }
    }
}

/// What turns a thread's view into frames.
struct Naming<'a> {
    codes: &'a Codes,
    names: HashMap<u64, Name>,
    interpreter: Interpreter,
    listed: Option<Runs>,
}

impl Naming<'_> {
    fn fill(&self, stack: &mut ThreadStack, view: &View, calls: &Calls) {
        let woven = self
            .runs(view)
            .and_then(|runs| interleave::weave(calls, runs));
        let (pieces, whole) = match woven {
            Some(woven) => (woven.pieces, woven.whole),
            None => (self.apart(view, calls), false),
        };
        let before = std::mem::take(&mut stack.frames);
        stack.frames = pieces
            .iter()
            .flat_map(|piece| self.frames(piece, view, calls))
            .collect();
        keep_locals(before, &mut stack.frames);
        let cut = view
            .chains
            .iter()
            .any(|chain| chain.end != FrameChainEnd::Outermost);
        stack.missing = match () {
            () if !whole => FrameGap::Native,
            () if cut => FrameGap::Outer,
            () => FrameGap::Nothing,
        };
    }

    fn runs(&self, view: &View) -> Option<Vec<Run>> {
        let mut runs = Vec::new();
        for (index, (chain, newest)) in view.chains.iter().zip(&view.newest).enumerate() {
            let listed = self.listed.map_or_else(Vec::new, |list| {
                listed(&view.pose.stack, *newest, list.previous)
            });
            runs.extend(interleave::runs(index, chain, &listed)?);
        }
        Some(runs)
    }

    /// When the two do not fit together: what is native for sure inside of all Python, then all Python.
    fn apart(&self, view: &View, calls: &Calls) -> Vec<Piece> {
        let is_loop = |address| {
            let name: Option<&Name> = self.names.get(&address);
            name.and_then(|name| name.function.as_deref()) == Some(LOOP)
        };
        let inner = calls.calls.iter().position(|call| is_loop(call.address));
        let natives = (0..inner.unwrap_or(0)).map(Piece::Native);
        // Younger interpreters were called by older ones.
        let chains = view.chains.iter().enumerate().rev();
        let python = chains.map(|(chain, frames)| Piece::Python {
            chain,
            frames: 0..frames.frames.len(),
        });
        natives.chain(python).collect()
    }

    fn frames(&self, piece: &Piece, view: &View, calls: &Calls) -> Vec<Frame> {
        match piece {
            Piece::Python { chain, frames } => {
                let raw = &view.chains[*chain].frames[frames.clone()];
                name_all(self.codes, raw, &mut std::iter::empty())
            }
            Piece::Native(index) => {
                let address = calls.calls[*index].address;
                self.native(address).into_iter().collect()
            }
        }
    }

    /// `None` for one that says nothing.
    fn native(&self, address: u64) -> Option<Frame> {
        let Some(name) = self.names.get(&address) else {
            return Some(native_frame(
                format!("{address:#x}").into(),
                PathBuf::new(),
                address,
            ));
        };
        if self.interpreter.is_plumbing(name) {
            return None;
        }
        let func = name.function.clone().unwrap_or_else(|| {
            let file = name.module.file_name().unwrap_or_default();
            format!("{:#x} in {}", name.address, file.to_string_lossy()).into()
        });
        let mut frame = native_frame(func, name.module.to_path_buf(), name.address);
        if let Some(at) = &name.line {
            (frame.line, frame.source_file) = (Some(at.line), Some(at.file.clone()));
        }
        Some(frame)
    }
}

fn native_frame(func: Arc<str>, module: PathBuf, address: u64) -> Frame {
    Frame {
        func,
        file: module.into(),
        line: None,
        source_file: None,
        address: 0,
        is_entry: false,
        locals: None,
        more_locals: 0,
        kind: FrameKind::Native { address },
    }
}

/// Moves the locals of Python's frames to where they are the same.
fn keep_locals(before: Vec<Frame>, frames: &mut [Frame]) {
    let mut known: HashMap<u64, Frame> = before.into_iter().map(|old| (old.address, old)).collect();
    for frame in frames.iter_mut().filter(|frame| frame.address != 0) {
        let same = |old: &Frame| old.func == frame.func && old.file == frame.file;
        if let Some(old) = known.remove(&frame.address).filter(same) {
            (frame.locals, frame.more_locals) = (old.locals, old.more_locals);
        }
    }
}

/// The runs that lie on a stack, newest first; each points to the one before, which is further out.
fn listed(stack: &StackCopy, newest: u64, previous: u64) -> Vec<u64> {
    let (mut runs, mut next) = (Vec::new(), newest);
    while let Some(before) = stack.u64_at(next.wrapping_add(previous)) {
        runs.push(next);
        if before <= next {
            break;
        }
        next = before;
    }
    runs
}
