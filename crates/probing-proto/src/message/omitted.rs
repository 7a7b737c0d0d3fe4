//! Fields that a message omits because they have their default.
#![expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for references"
)]

pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

pub(crate) fn is_none_at_all(count: &u32) -> bool {
    *count == 0
}

/// As a count of times: the first is meant when none is named.
pub(crate) fn is_first(count: &u64) -> bool {
    *count <= 1
}
