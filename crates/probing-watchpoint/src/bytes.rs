//! What a debug register can watch: 1, 2, 4 or 8 bytes, at a place that their number divides.

/// Bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    pub(crate) address: u64,
    pub(crate) length: u8,
}

/// Why they cannot be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotBytes {
    #[error("1, 2, 4 or 8 bytes can be watched, not {length}")]
    Length { length: u64 },
    #[error("{length} bytes need an address that is a multiple of {length}: {address:#x}")]
    Unaligned { address: u64, length: u64 },
    #[error("no memory is mapped at: {address:#x}")]
    Nowhere { address: u64 },
}

impl NotBytes {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unaligned { address, length } => {
                let aligned = address & !(length - 1);
                Some(format!(
                    "--addr {aligned:#x} is just before; or fewer bytes: --len {}",
                    longest(*address)
                ))
            }
            Self::Length { .. } | Self::Nowhere { .. } => None,
        }
    }
}

/// How many can be watched from an address on.
fn longest(address: u64) -> u64 {
    1 << address.trailing_zeros().min(3)
}

impl Bytes {
    /// From an address on; without a length as many as can be.
    pub fn at(address: u64, length: Option<u64>) -> Result<Self, NotBytes> {
        let length = length.unwrap_or(longest(address));
        if !matches!(length, 1 | 2 | 4 | 8) {
            return Err(NotBytes::Length { length });
        }
        // The first page is nobody's; the upper half is the kernel's.
        if !(4096..1 << 63).contains(&address) {
            return Err(NotBytes::Nowhere { address });
        }
        if !address.is_multiple_of(length) {
            return Err(NotBytes::Unaligned { address, length });
        }
        Ok(Self {
            address,
            length: length as u8,
        })
    }

    pub fn address(self) -> u64 {
        self.address
    }

    pub fn length(self) -> usize {
        usize::from(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bytes_as_the_address_allows() {
        let length = |address| Bytes::at(address, None).unwrap().length();
        assert_eq!([0x1000, 0x1004, 0x1002, 0x1001].map(length), [8, 4, 2, 1]);
        assert_eq!(Bytes::at(0x1004, Some(2)).unwrap().length(), 2);
    }

    #[test]
    fn what_no_register_can_hold_is_refused() {
        let refuse = |address, length| Bytes::at(address, Some(length)).unwrap_err();
        assert_eq!(refuse(0x1000, 3), NotBytes::Length { length: 3 });
        assert_eq!(refuse(8, 8), NotBytes::Nowhere { address: 8 });
        let unaligned = refuse(0x1002, 8);
        let hint = unaligned.hint().unwrap();
        assert_eq!(
            hint,
            "--addr 0x1000 is just before; or fewer bytes: --len 2"
        );
    }
}
