//! The instructions that run in the target.
//!
//! Three small functions in one page, position known, x19 = context throughout: `work` (runs the source with the GIL),
//! `entry` (the new thread), and the stub, which the borrowed thread enters and which brings it home by
//! `rt_sigreturn`. Nothing here allocates or locks.

use crate::arch::aarch64::assembler::{Assembler, CONTEXT, If, Jump};
use crate::arch::aarch64::{frame, numbers};
use crate::arch::{CLOCK_MONOTONIC, Code, FILE_INPUT, Plan, READ_WRITE};
use crate::injection::remote_block::{COURTESIES, LOOKS, PAGE, State, StubKind, TEXT_ROOM, at};

/// All code for `plan`; the block's first page.
pub(crate) fn assemble(plan: &Plan<'_>) -> Code {
    let mut code = Assembler::new(plan.start);
    let work = code.here();
    code.work(plan);
    let entry = code.here();
    code.entry(plan, work);
    let stub = code.here();
    let not_writable = code.make_writable(plan);
    match plan.layout.way {
        StubKind::Thread => code.start_thread(plan, entry),
        StubKind::Pending => {} // never asked for: see `HAS_PENDING`
        StubKind::Hijack => code.run_here(plan, work),
    }
    code.leave();
    code.land(not_writable);
    code.go_home();
    Code {
        bytes: code.bytes,
        stub,
    }
}

impl Assembler {
    /// `void work(void* context)`: takes the GIL, runs the source unless it was cancelled, notes the result.
    fn work(&mut self, plan: &Plan<'_>) {
        let python = plan.functions;
        let (gil, globals) = (20, 21);
        self.begin();
        self.copy(CONTEXT, 0);
        self.call(python.is_initialized);
        let initialized = self.jump(If::IntNotZero(0));
        self.store_value(State::NotInitialized as u32, at::STATE);
        let not_initialized = self.jump(If::Always);
        self.land(initialized);

        self.call(python.ensure_gil);
        self.copy(gil, 0);
        self.store_value(State::Running as u32, at::STATE);
        self.barrier(); // either we see the cancel, or the canceller sees that we run
        self.load(9, at::CANCEL);
        let go = self.jump(If::Zero(9));
        self.store_value(State::Cancelled as u32, at::STATE);
        let cancelled = self.jump(If::Always);

        self.land(go);
        self.call(python.new_dict);
        let no_dict = self.jump(If::Zero(0));
        self.copy(globals, 0);
        self.address(0, at::SOURCE);
        self.set(1, FILE_INPUT);
        self.copy(2, globals);
        self.copy(3, globals);
        self.call(python.run_string);
        let raised = self.jump(If::Zero(0));
        self.call(python.drop_reference);
        self.land(raised);
        self.bring_text(plan, globals);
        self.copy(0, globals);
        self.call(python.drop_reference);
        self.call(python.clear_error);
        let done = self.jump(If::Always);

        self.land(no_dict);
        self.call(python.clear_error);
        self.store_value(State::Failed as u32, at::STATE);
        self.land(cancelled);
        self.land(done);
        self.copy(0, gil);
        self.call(python.release_gil);
        self.land(not_initialized);
        self.end();
        self.give_back();
    }

    /// Copies what the wrapper left in its variable.
    fn bring_text(&mut self, plan: &Plan<'_>, globals: u32) {
        let python = plan.functions;
        let (text, to, from, len) = (22, 0, 1, 2);
        self.copy(0, globals);
        self.address(1, at::NAME);
        self.call(python.dict_item);
        let missing = self.jump(If::Zero(0));
        self.copy(text, 0);
        self.call(python.bytes_len);
        self.store(0, at::TEXT_LEN);
        self.copy(0, text);
        self.call(python.bytes_start);
        let no_bytes = self.jump(If::Zero(0));
        self.copy(from, 0);
        self.load(len, at::TEXT_LEN);
        self.at_most(len, TEXT_ROOM);
        self.address(to, at::TEXT);
        let next = self.here();
        let copied = self.jump(If::Zero(len));
        self.copy_byte(to, from);
        self.decrement(len);
        self.jump_back(If::Always, next);
        self.land(copied);
        self.barrier(); // who sees that it is done finds the text
        self.store_value(State::Done as u32, at::STATE);
        let done = self.jump(If::Always);
        self.land(missing);
        self.land(no_bytes);
        self.store_value(State::Failed as u32, at::STATE);
        self.land(done);
    }

    /// `void entry(void* context)`: the new thread. Its last act is to unmap the block, if we say so in time.
    ///
    /// It keeps the blocked signals that it was born with: else it would catch, in place of main, signals sent
    /// while main has them blocked.
    fn entry(&mut self, plan: &Plan<'_>, work: u64) {
        self.begin();
        self.copy(CONTEXT, 0);
        self.system_call(numbers::GETTID as u32);
        self.store(0, at::THREAD);
        // On a busy machine the new thread may have the CPU that the borrowed one needs to get home.
        self.nap_until(at::LEFT, COURTESIES);
        self.copy(0, CONTEXT);
        self.call(work);
        self.nap_until(at::VERDICT, LOOKS);
        self.load(9, at::VERDICT);
        self.decrement(9);
        let leave = self.jump(If::NotZero(9));
        self.end();
        self.unmap_and_return(plan);
        self.land(leave);
        self.end();
        self.give_back();
    }

    /// Sleeps `times` at most, or until the word is not zero.
    fn nap_until(&mut self, word: u32, times: u32) {
        let left = 20;
        self.set(left, u64::from(times));
        let look = self.here();
        self.load(9, word);
        let seen = self.jump(If::NotZero(9));
        self.address(0, at::NAP);
        self.set(1, 0);
        self.system_call(numbers::NANOSLEEP as u32);
        self.decrement(left);
        self.jump_back(If::NotZero(left), look);
        self.land(seen);
    }

    /// `munmap` of the whole block through code outside it, which then returns to our caller.
    fn unmap_and_return(&mut self, plan: &Plan<'_>) {
        self.set(0, plan.start);
        self.set(1, plan.layout.total);
        self.system_call_and_return(numbers::MUNMAP as u32, plan.gadgets.call);
    }

    /// Makes all but the code writable, and no longer executable. Until then not even the stack is. Jumps if that
    /// fails: then the thread goes home and leaves no word.
    fn make_writable(&mut self, plan: &Plan<'_>) -> Jump {
        self.set(0, plan.start + PAGE);
        self.set(1, plan.layout.total - PAGE);
        self.set(2, READ_WRITE);
        self.system_call(numbers::MPROTECT as u32);
        self.jump(If::NotZero(0))
    }

    fn start_thread(&mut self, plan: &Plan<'_>, entry: u64) {
        self.fresh_floats(); // a new thread inherits them
        self.set(0, entry);
        self.copy(1, CONTEXT);
        self.call(plan.functions.start_thread);
        self.store(0, at::STARTED);
    }

    /// On the thread's own stack, because from 3.14 on Python knows where a thread's stack ends.
    fn run_here(&mut self, plan: &Plan<'_>, work: u64) {
        self.fresh_floats();
        self.set(9, plan.own_stack);
        self.set_stack(9);
        self.copy(0, CONTEXT);
        self.call(work);
    }

    /// Says so, and goes home; a system call that a waiting signal would have interrupted is interrupted.
    fn leave(&mut self) {
        self.address(0, at::WAITING);
        self.set(1, 8);
        self.system_call(numbers::SIGPENDING as u32);
        self.load(9, at::WAITING);
        self.load(10, at::MASK);
        self.without(9, 10);
        let nothing_waits = self.jump(If::Zero(9));
        self.load(10, at::OWN_STACK);
        self.load(9, at::INTERRUPTED_RESULT);
        self.store_through(9, 10, frame::RESULT_AT);
        self.load(9, at::INTERRUPTED_PC);
        self.store_through(9, 10, frame::PC_AT);
        self.land(nothing_waits);
        self.set(0, CLOCK_MONOTONIC);
        self.address(1, at::LEFT_AT);
        self.system_call(numbers::CLOCK_GETTIME as u32);
        self.barrier();
        self.store_value(1, at::LEFT);
        self.go_home();
    }

    /// The same, when nothing can be written.
    fn go_home(&mut self) {
        self.load(9, at::OWN_STACK);
        self.set_stack(9);
        self.system_call(numbers::SIGRETURN as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Gadgets;
    use crate::arch::aarch64::assemble;
    use crate::injection::remote_block::Layout;
    use crate::python::Functions;

    const START: u64 = 0x7f00_1000_0000;
    const FUNCTIONS: Functions = Functions {
        is_initialized: 0x2_0000,
        ensure_gil: 0x2_0100,
        release_gil: 0x2_0200,
        new_dict: 0x2_0300,
        run_string: 0x2_0400,
        clear_error: 0x2_0500,
        dict_item: 0x2_0600,
        bytes_start: 0x2_0700,
        bytes_len: 0x2_0800,
        drop_reference: 0x2_0900,
        start_thread: 0x2_0a00,
        add_pending_call: 0x2_0b00,
        main_interpreter: 0x2_0c00,
        nothing_raised: 0x2_0d00,
    };

    /// The stub itself, as words.
    fn stub(way: StubKind) -> Vec<u32> {
        let code = assemble(&Plan {
            functions: &FUNCTIONS,
            gadgets: Gadgets {
                call: 0x3_0000,
                restorer: 0x3_0100,
            },
            start: START,
            layout: Layout::new(way, 100, 0),
            own_stack: 0x7ffd_0000_4000,
        });
        assert!(code.bytes.len() < 4096);
        code.bytes[(code.stub - START) as usize..]
            .chunks(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn both_ways_home_are_a_return_from_a_signal() {
        // ldr x9, [x19, #0x120]; mov sp, x9; mov x8, #139; svc #0
        const HOME: &[u32] = &[0xf940_9269, 0x9100_013f, 0xd280_1168, 0xd400_0001];
        for way in [StubKind::Thread, StubKind::Hijack] {
            let words = stub(way);
            let (rest, last) = words.split_at(words.len() - HOME.len());
            assert_eq!(last, HOME);
            assert!(rest.ends_with(HOME)); // the one that says so before
        }
    }

    #[test]
    fn who_cannot_write_to_the_block_goes_home_at_once() {
        const SYSTEM_CALL: u32 = 0xd400_0001;
        let words = stub(StubKind::Thread);
        let mprotect = words.iter().position(|word| *word == SYSTEM_CALL);
        let jump = mprotect.unwrap() + 1;
        let distance = words.len() - 4 - jump;
        assert_eq!(words[jump], 0xb500_0000 | (distance as u32) << 5); // cbnz x0
    }
}
