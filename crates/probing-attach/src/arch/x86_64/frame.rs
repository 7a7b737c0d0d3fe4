//! The kernel's `struct rt_sigframe`, as it would write it itself before a signal handler.
//!
//! It lies on the thread's stack while we obtain memory, and is taken only if we die meanwhile: then
//! `rt_sigreturn` puts back every register, the vector state and the signal mask.

use crate::arch::{Frame, Home};

/// Start of the area in which software describes the vector state that follows.
const SOFTWARE: usize = 464;
const LEGACY: usize = 512;
const WITH_HEADER: usize = 576;
const MAGIC_START: u32 = 0x4650_5853;
const MAGIC_END: u32 = 0x4650_5845;
/// Return address, ucontext, signal mask.
const CONTEXT: u64 = 440;
/// Vector state present; stack segment is meant and must be restored strictly.
const UC_FLAGS: u64 = 7;
/// An invalid flag on purpose: then the kernel leaves the thread's alternate stack as it is.
const NO_ALTERNATE_STACK: u64 = 0x7fff;

/// `None` if the thread's vector state is not as the kernel promises.
pub(crate) fn frame(home: &Home, mask: u64, vectors: &[u8], restorer: u64) -> Option<Frame> {
    let vectors = vector_image(vectors)?;
    let regs = &home.regs;
    let red_zone = 128;
    let top = regs.rsp.checked_sub(red_zone + vectors.len() as u64)?;
    let vectors_at = top & !63; // as the instruction that restores it wants
    let address = (vectors_at.checked_sub(CONTEXT)? & !15).checked_sub(8)?;

    let mut words = vec![restorer, UC_FLAGS, 0, 0, NO_ALTERNATE_STACK, 0];
    words.extend([
        regs.r8,
        regs.r9,
        regs.r10,
        regs.r11,
        regs.r12,
        regs.r13,
        regs.r14,
        regs.r15,
        regs.rdi,
        regs.rsi,
        regs.rbp,
        regs.rbx,
        regs.rdx,
        home.fallback_result,
        regs.rcx,
        regs.rsp,
        regs.rip,
        regs.eflags,
    ]);
    words.push(regs.cs | regs.ss << 48);
    // err, trapno, oldmask, cr2, where the vectors are, eight reserved words, the signal mask
    words.extend([0, 0, 0, 0, vectors_at, 0, 0, 0, 0, 0, 0, 0, 0, mask]);

    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize((vectors_at - address) as usize, 0);
    bytes.extend(vectors);
    Some(Frame { address, bytes })
}

/// The vector state with the marks that make the kernel restore all of it, not only x87 and SSE.
fn vector_image(vectors: &[u8]) -> Option<Vec<u8>> {
    // The kernel refuses a frame longer than what this thread may use (AMX needs a permit), so take only the
    // features in use; the others are reset, which is what they are.
    let in_use = u64::from_le_bytes(vectors.get(LEGACY..LEGACY + 8)?.try_into().ok()?);
    let mut features = in_use | 3;
    let mut size = WITH_HEADER;
    for feature in (2..63).filter(|feature| in_use >> feature & 1 == 1) {
        let place = std::arch::x86_64::__cpuid_count(0xd, feature);
        let end = place.ebx as usize + place.eax as usize;
        if end > vectors.len() {
            features &= !(1 << feature);
        } else {
            size = size.max(end);
        }
    }
    let mut image = vectors.get(..size)?.to_vec();
    let mut software = [0; LEGACY - SOFTWARE];
    software[..4].copy_from_slice(&MAGIC_START.to_le_bytes());
    software[4..8].copy_from_slice(&(size as u32 + 4).to_le_bytes());
    software[8..16].copy_from_slice(&features.to_le_bytes());
    software[16..20].copy_from_slice(&(size as u32).to_le_bytes());
    image[SOFTWARE..LEGACY].copy_from_slice(&software);
    image.extend(MAGIC_END.to_le_bytes());
    Some(image)
}
