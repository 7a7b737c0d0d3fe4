//! The instructions that run in the target.
//!
//! Four small functions in one page, position known, `rbx` = context throughout:
//! `work` (runs the source with the GIL), `entry` (the new thread), `pending` (called by main), and the stub,
//! which the borrowed thread enters and which brings it home in user mode. Nothing here allocates or locks.

use crate::arch::{CLOCK_MONOTONIC, Code, FILE_INPUT, Plan, READ_WRITE};
use crate::injection::remote_block::{COURTESIES, LOOKS, PAGE, State, StubKind, TEXT_ROOM, at};

const SIGPROCMASK: u32 = libc::SYS_rt_sigprocmask as u32;
const SIGPENDING: u32 = libc::SYS_rt_sigpending as u32;
const NANOSLEEP: u32 = libc::SYS_nanosleep as u32;
const MPROTECT: u32 = libc::SYS_mprotect as u32;
const MUNMAP: u32 = libc::SYS_munmap as u32;
const CLONE: u32 = libc::SYS_clone as u32;
const EXIT: u32 = libc::SYS_exit as u32;
const CLOCK_GETTIME: u32 = libc::SYS_clock_gettime as u32;
const GETTID: u32 = libc::SYS_gettid as u32;
const SIG_SETMASK: u32 = libc::SIG_SETMASK as u32;
/// `pop r13; pop r12; pop rbx`
const ENTRY_END: &[u8] = &[0x41, 0x5d, 0x41, 0x5c, 0x5b];

/// All code for `plan`; the block's first page.
pub(crate) fn assemble(plan: &Plan<'_>) -> Code {
    let mut code = Assembler::new(plan.start);
    let work = code.here();
    code.work(plan);
    let entry = code.here();
    code.entry(plan, work);
    let pending = code.here();
    code.pending(plan, entry);
    let stub = code.here();
    let not_writable = code.make_writable(plan);
    match plan.layout.way {
        StubKind::Thread => code.start_thread(plan, entry),
        StubKind::Pending => code.clone_helper(plan, pending),
        StubKind::Hijack => code.run_here(plan, work),
    }
    code.leave(plan.start + PAGE);
    code.land(not_writable);
    code.go_home(plan.start + PAGE);
    Code {
        bytes: code.bytes,
        stub,
    }
}

/// A forward jump whose distance is not known yet: where the distance goes.
struct Jump(usize);

#[derive(Clone, Copy)]
enum If {
    Always,
    Zero,
    NotZero,
}

/// Registers by their number in instructions.
const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RBX: u8 = 3;
const RSP: u8 = 4;
const RBP: u8 = 5;
const RSI: u8 = 6;
const RDI: u8 = 7;
const R8: u8 = 8;
const R10: u8 = 10;
const R12: u8 = 12;
const R13: u8 = 13;

struct Assembler {
    base: u64,
    bytes: Vec<u8>,
}

impl Assembler {
    fn new(base: u64) -> Self {
        Self {
            base,
            bytes: Vec::with_capacity(PAGE as usize),
        }
    }

    fn here(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// An instruction whose operand is the word at `context + at`.
    fn with_word(&mut self, opcode: &[u8], at: u32) {
        self.raw(opcode);
        self.raw(&at.to_le_bytes());
    }

    /// `mov register, [context + at]`
    fn load(&mut self, register: u8, at: u32) {
        let prefix = if register > 7 { 0x4c } else { 0x48 };
        self.with_word(&[prefix, 0x8b, 0x83 | (register & 7) << 3], at);
    }

    /// `mov [context + at], register`
    fn store(&mut self, register: u8, at: u32) {
        let prefix = if register > 7 { 0x4c } else { 0x48 };
        self.with_word(&[prefix, 0x89, 0x83 | (register & 7) << 3], at);
    }

    /// `mov qword [context + at], value`
    fn store_value(&mut self, value: u32, at: u32) {
        self.with_word(&[0x48, 0xc7, 0x83], at);
        self.raw(&value.to_le_bytes());
    }

    /// `lea register, [context + at]`
    fn address(&mut self, register: u8, at: u32) {
        self.with_word(&[0x48, 0x8d, 0x83 | (register & 7) << 3], at);
    }

    /// `mov register, value`
    fn set(&mut self, register: u8, value: u64) {
        self.raw(&[if register > 7 { 0x49 } else { 0x48 }, 0xb8 | register & 7]);
        self.raw(&value.to_le_bytes());
    }

    /// `mov to, from`
    fn copy(&mut self, to: u8, from: u8) {
        let prefix = 0x48 | u8::from(from > 7) << 2 | u8::from(to > 7);
        self.raw(&[prefix, 0x89, 0xc0 | (from & 7) << 3 | to & 7]);
    }

    fn call(&mut self, function: u64) {
        self.set(RAX, function);
        self.raw(&[0xff, 0xd0]);
    }

    fn system_call(&mut self, number: u32) {
        self.set(RAX, u64::from(number));
        self.raw(&[0x0f, 0x05]);
    }

    /// `test rax, rax`
    fn test_result(&mut self) {
        self.raw(&[0x48, 0x85, 0xc0]);
    }

    /// `cmp qword [context + at], value`
    fn compare(&mut self, at: u32, value: u8) {
        self.with_word(&[0x48, 0x83, 0xbb], at);
        self.raw(&[value]);
    }

    fn jump(&mut self, condition: If) -> Jump {
        match condition {
            If::Always => self.raw(&[0xe9]),
            If::Zero => self.raw(&[0x0f, 0x84]),
            If::NotZero => self.raw(&[0x0f, 0x85]),
        }
        self.raw(&[0; 4]);
        Jump(self.bytes.len())
    }

    fn land(&mut self, jump: Jump) {
        let distance = (self.bytes.len() - jump.0) as u32;
        self.bytes[jump.0 - 4..jump.0].copy_from_slice(&distance.to_le_bytes());
    }

    fn jump_back(&mut self, condition: If, to: u64) {
        let jump = self.jump(condition);
        let distance = to.wrapping_sub(self.here()) as u32;
        self.bytes[jump.0 - 4..jump.0].copy_from_slice(&distance.to_le_bytes());
    }

    /// `rt_sigprocmask(SIG_SETMASK, context + new, context + old or nothing, 8)`
    fn set_mask(&mut self, new: u32, old: Option<u32>) {
        self.set(RDI, u64::from(SIG_SETMASK));
        self.address(RSI, new);
        match old {
            Some(old) => self.address(RDX, old),
            None => self.set(RDX, 0),
        }
        self.set(R10, 8);
        self.system_call(SIGPROCMASK);
    }

    /// `munmap` of the whole block through code outside it, which then returns to our caller, with 0.
    fn unmap_and_return(&mut self, plan: &Plan<'_>) {
        self.set(RDI, plan.start);
        self.set(RSI, plan.layout.total);
        self.set(RAX, u64::from(MUNMAP));
        self.set(RCX, plan.gadgets.call);
        self.raw(&[0xff, 0xe1]); // jmp rcx
    }

    /// Jumps if the pending call was not made by the borrowed thread: then nobody knows that that one is home.
    fn jump_unless_borrowed(&mut self) -> Jump {
        self.load(RAX, at::CALLER);
        self.with_word(&[0x48, 0x3b, 0x83], at::BORROWED); // cmp rax, [borrowed]
        self.jump(If::NotZero)
    }

    /// `void work(void* context)`: takes the GIL, runs the source unless it was cancelled, notes the result.
    fn work(&mut self, plan: &Plan<'_>) {
        let python = plan.functions;
        self.raw(&[0x53, 0x41, 0x54, 0x41, 0x55]); // push rbx; push r12; push r13: the stack is aligned now
        self.copy(RBX, RDI);
        self.call(python.is_initialized);
        self.raw(&[0x85, 0xc0]); // test eax, eax
        let initialized = self.jump(If::NotZero);
        self.store_value(State::NotInitialized as u32, at::STATE);
        let not_initialized = self.jump(If::Always);
        self.land(initialized);

        self.call(python.ensure_gil);
        self.copy(R12, RAX);
        self.set(RAX, State::Running as u64);
        // xchg is a full barrier: either we see the cancel, or the canceller sees that we run.
        self.with_word(&[0x48, 0x87, 0x83], at::STATE);
        self.compare(at::CANCEL, 0);
        let go = self.jump(If::Zero);
        self.store_value(State::Cancelled as u32, at::STATE);
        let cancelled = self.jump(If::Always);

        self.land(go);
        self.call(python.new_dict);
        self.test_result();
        let no_dict = self.jump(If::Zero);
        self.copy(R13, RAX);
        self.set(RDI, plan.start + PAGE + u64::from(at::SOURCE));
        self.set(RSI, FILE_INPUT);
        self.copy(RDX, R13);
        self.copy(RCX, R13);
        self.call(python.run_string);
        self.test_result();
        let raised = self.jump(If::Zero);
        self.copy(RDI, RAX);
        self.call(python.drop_reference);
        self.land(raised);
        self.bring_text(plan);
        self.copy(RDI, R13);
        self.call(python.drop_reference);
        self.call(python.clear_error);
        let done = self.jump(If::Always);

        self.land(no_dict);
        self.call(python.clear_error);
        self.store_value(State::Failed as u32, at::STATE);
        self.land(cancelled);
        self.land(done);
        self.copy(RDI, R12);
        self.call(python.release_gil);
        self.land(not_initialized);
        self.raw(&[0x41, 0x5d, 0x41, 0x5c, 0x5b, 0xc3]); // pop r13; pop r12; pop rbx; ret
    }

    /// Copies what the wrapper left in its variable. r13 = its globals.
    fn bring_text(&mut self, plan: &Plan<'_>) {
        let python = plan.functions;
        self.copy(RDI, R13);
        self.address(RSI, at::NAME);
        self.call(python.dict_item);
        self.test_result();
        let missing = self.jump(If::Zero);
        self.raw(&[0x50, 0x50]); // push rax, twice: aligned
        self.copy(RDI, RAX);
        self.call(python.bytes_len);
        self.store(RAX, at::TEXT_LEN);
        self.raw(&[0x48, 0x8b, 0x3c, 0x24]); // mov rdi, [rsp]
        self.call(python.bytes_start);
        self.raw(&[0x48, 0x83, 0xc4, 0x10]); // add rsp, 16
        self.test_result();
        let no_bytes = self.jump(If::Zero);
        self.copy(RSI, RAX);
        self.load(RCX, at::TEXT_LEN);
        self.set(RAX, u64::from(TEXT_ROOM));
        self.raw(&[0x48, 0x39, 0xc1, 0x48, 0x0f, 0x47, 0xc8]); // cmp rcx, rax; cmova rcx, rax
        self.address(RDI, at::TEXT);
        self.raw(&[0xf3, 0xa4]); // rep movsb
        self.store_value(State::Done as u32, at::STATE);
        let done = self.jump(If::Always);
        self.land(missing);
        self.land(no_bytes);
        self.store_value(State::Failed as u32, at::STATE);
        self.land(done);
    }

    /// `void entry(void* context)`: the new thread. Its last act is to unmap the block, if we say so; it waits for that
    /// as long as we show signs of life.
    ///
    /// It keeps the blocked signals that it was born with: else it would catch, in place of main, signals sent
    /// while main has them blocked.
    fn entry(&mut self, plan: &Plan<'_>, work: u64) {
        self.raw(&[0x53, 0x41, 0x54, 0x41, 0x55]); // push rbx; push r12; push r13
        self.copy(RBX, RDI);
        self.system_call(GETTID);
        self.store(RAX, at::THREAD);
        self.let_borrowed_thread_go_first();
        self.copy(RDI, RBX);
        self.call(work);
        self.set(R12, u64::from(LOOKS));
        self.load(R13, at::BEAT);
        let look = self.here();
        self.compare(at::VERDICT, 0);
        let decided = self.jump(If::NotZero);
        self.load(RAX, at::BEAT);
        self.raw(&[0x4c, 0x39, 0xe8]); // cmp rax, r13
        let silent = self.jump(If::Zero);
        self.copy(R13, RAX);
        self.set(R12, u64::from(LOOKS));
        self.land(silent);
        self.address(RDI, at::NAP);
        self.set(RSI, 0);
        self.system_call(NANOSLEEP);
        self.raw(&[0x49, 0xff, 0xcc]); // dec r12
        self.jump_back(If::NotZero, look);
        self.land(decided);
        self.compare(at::VERDICT, 1);
        let leave = self.jump(If::NotZero);
        let elsewhere = (plan.layout.way == StubKind::Pending).then(|| self.jump_unless_borrowed());
        self.raw(ENTRY_END);
        self.unmap_and_return(plan);
        self.land(leave);
        if let Some(elsewhere) = elsewhere {
            self.land(elsewhere);
        }
        self.raw(ENTRY_END);
        self.raw(&[0xc3]);
    }

    /// On a busy machine the new thread may have the CPU that the borrowed one needs to get home.
    fn let_borrowed_thread_go_first(&mut self) {
        self.set(R12, u64::from(COURTESIES));
        let look = self.here();
        self.compare(at::LEFT, 0);
        let gone = self.jump(If::NotZero);
        self.address(RDI, at::NAP);
        self.set(RSI, 0);
        self.system_call(NANOSLEEP);
        self.raw(&[0x49, 0xff, 0xcc]); // dec r12
        self.jump_back(If::NotZero, look);
        self.land(gone);
    }

    /// `int pending(void* context)`: main calls it between two bytecodes, with the GIL. Always 0: it must not fail.
    ///
    /// Starts the thread rather than run the source: here main may hold locks that the source wants.
    fn pending(&mut self, plan: &Plan<'_>, entry: u64) {
        self.raw(&[0x53]); // push rbx: aligned
        self.copy(RBX, RDI);
        self.system_call(GETTID);
        self.store(RAX, at::CALLER);
        self.compare(at::CANCEL, 0);
        let cancelled = self.jump(If::NotZero);
        self.set_mask(at::EVERY_SIGNAL, Some(at::OLD_MASK));
        self.set(RDI, entry);
        self.copy(RSI, RBX);
        self.call(plan.functions.start_thread);
        self.store(RAX, at::STARTED);
        self.set_mask(at::OLD_MASK, None);
        self.raw(&[0x31, 0xc0, 0x5b, 0xc3]); // xor eax, eax; pop rbx; ret
        self.land(cancelled);
        self.store_value(State::Cancelled as u32, at::STATE);
        self.compare(at::VERDICT, 1);
        let leave = self.jump(If::NotZero);
        let elsewhere = self.jump_unless_borrowed();
        self.raw(&[0x5b]); // pop rbx
        self.unmap_and_return(plan);
        self.land(leave);
        self.land(elsewhere);
        self.raw(&[0x31, 0xc0, 0x5b, 0xc3]); // xor eax, eax; pop rbx; ret
    }

    /// Makes all but the code writable, and no longer executable. Until then not even the stack is. Jumps if that
    /// fails: then the thread goes home and leaves no word.
    fn make_writable(&mut self, plan: &Plan<'_>) -> Jump {
        self.set(RDI, plan.start + PAGE);
        self.set(RSI, plan.layout.total - PAGE);
        self.set(RDX, READ_WRITE);
        self.system_call(MPROTECT);
        self.test_result();
        self.jump(If::NotZero)
    }

    fn start_thread(&mut self, plan: &Plan<'_>, entry: u64) {
        self.save_vectors();
        self.set(RDI, entry);
        self.copy(RSI, RBX);
        self.call(plan.functions.start_thread);
        self.store(RAX, at::STARTED);
        self.restore_vectors();
    }

    /// On the thread's own stack, because from 3.14 on Python knows where a thread's stack ends.
    fn run_here(&mut self, plan: &Plan<'_>, work: u64) {
        self.set(RSP, plan.own_stack);
        self.save_vectors();
        self.copy(RDI, RBX);
        self.call(work);
        self.restore_vectors();
    }

    /// The thread makes a raw system call only; the new kernel thread has its own stack and storage.
    fn clone_helper(&mut self, plan: &Plan<'_>, pending: u64) {
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | libc::CLONE_SETTLS
            | libc::CLONE_PARENT_SETTID
            | libc::CLONE_CHILD_CLEARTID;
        self.set(RDI, flags as u64);
        self.set(RSI, plan.start + plan.layout.helper_stack);
        self.address(RDX, at::HELPER);
        self.copy(R10, RDX);
        self.set(R8, plan.start + plan.layout.thread_pointer);
        self.system_call(CLONE);
        self.test_result();
        let parent = self.jump(If::NotZero);
        self.fresh_floats();
        self.raw(&[0x31, 0xed, 0xfc]); // xor ebp, ebp; cld
        self.call(plan.functions.is_initialized);
        self.raw(&[0x85, 0xc0]); // test eax, eax
        let initialized = self.jump(If::NotZero);
        self.store_value(State::NotInitialized as u32, at::STATE);
        let not_initialized = self.jump(If::Always);
        self.land(initialized);
        self.call(plan.functions.main_interpreter);
        self.store(RAX, at::INTERPRETER);
        self.set(RDI, pending);
        self.copy(RSI, RBX);
        self.call(plan.functions.add_pending_call);
        self.raw(&[0x83, 0xc0, 0x02]); // add eax, 2
        self.with_word(&[0x89, 0x83], at::QUEUED); // mov [queued], eax
        self.land(not_initialized);
        self.set(RDI, 0);
        self.system_call(EXIT); // of this kernel thread only
        self.land(parent);
        self.store(RAX, at::STARTED);
    }

    fn save_vectors(&mut self) {
        self.every_feature();
        self.with_word(&[0x48, 0x0f, 0xae, 0xa3], at::VECTORS); // xsave64
        self.fresh_floats(); // a new thread inherits them
    }

    fn restore_vectors(&mut self) {
        self.every_feature();
        self.with_word(&[0x48, 0x0f, 0xae, 0xab], at::VECTORS); // xrstor64
    }

    fn every_feature(&mut self) {
        self.set(RAX, u64::MAX);
        self.set(RDX, u64::MAX);
    }

    fn fresh_floats(&mut self) {
        self.raw(&[0xdb, 0xe3]); // fninit
        self.with_word(&[0x0f, 0xae, 0x93], at::FLOAT_CONTROL); // ldmxcsr
    }

    /// What `rt_sigreturn` does, in user mode. That call itself would make the kernel forget how to restart a
    /// sleep or a poll, which would then return EINTR.
    fn leave(&mut self, context: u64) {
        self.address(RDI, at::WAITING);
        self.set(RSI, 8);
        self.system_call(SIGPENDING);
        self.load(RAX, at::MASK);
        self.raw(&[0x48, 0xf7, 0xd0]); // not rax
        self.with_word(&[0x48, 0x23, 0x83], at::WAITING); // and rax, [waiting]
        let nothing_waits = self.jump(If::Zero);
        self.load(RAX, at::INTERRUPTED_RESULT);
        self.store(RAX, saved::RAX);
        self.load(RAX, at::INTERRUPTED_PC);
        self.store(RAX, saved::RIP);
        self.land(nothing_waits);
        self.set(RDI, CLOCK_MONOTONIC);
        self.address(RSI, at::LEFT_AT);
        self.system_call(CLOCK_GETTIME);
        self.restore_mask();
        self.store_value(1, at::LEFT);
        self.restore_registers(context);
    }

    /// The same, when nothing can be written.
    fn go_home(&mut self, context: u64) {
        self.restore_mask();
        self.restore_registers(context);
    }

    fn restore_mask(&mut self) {
        self.load(RSP, at::OWN_STACK); // handlers that waited run now, on the thread's own stack
        self.set_mask(at::MASK, None);
    }

    fn restore_registers(&mut self, context: u64) {
        self.with_word(&[0xff, 0xb3], saved::FLAGS); // push
        self.raw(&[0x9d]); // popfq: from here on only moves and a jump, which leave the flags alone
        for (register, at) in saved::ORDER {
            self.load(register, at);
        }
        let next = self.here() + 6;
        let distance = (context + u64::from(saved::RIP)).wrapping_sub(next) as u32;
        self.with_word(&[0xff, 0x25], distance); // jmp [rip + distance]
    }
}

/// Where the context has the registers; the base register comes last.
mod saved {
    use super::{RBP, RBX, RCX, RDI, RDX, RSI, RSP};
    use crate::injection::remote_block::at::REGISTERS;

    pub(super) const RAX: u32 = REGISTERS + 80;
    pub(super) const RIP: u32 = REGISTERS + 128;
    pub(super) const FLAGS: u32 = REGISTERS + 144;
    pub(super) const ORDER: [(u8, u32); 16] = [
        (15, REGISTERS),
        (14, REGISTERS + 8),
        (13, REGISTERS + 16),
        (12, REGISTERS + 24),
        (RBP, REGISTERS + 32),
        (11, REGISTERS + 48),
        (10, REGISTERS + 56),
        (9, REGISTERS + 64),
        (8, REGISTERS + 72),
        (super::RAX, RAX),
        (RCX, REGISTERS + 88),
        (RDX, REGISTERS + 96),
        (RSI, REGISTERS + 104),
        (RDI, REGISTERS + 112),
        (RSP, REGISTERS + 152),
        (RBX, REGISTERS + 40),
    ];
}
