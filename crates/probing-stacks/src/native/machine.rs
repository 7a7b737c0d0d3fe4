//! Facts about a processor that the unwinder needs.
//!
//! Each file has the same names for it.
//!
//! Registers have the numbers that DWARF gives them.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use self::aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use self::x86_64::*;
