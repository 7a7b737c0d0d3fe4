//! Tests of following calls with tables, files and stacks that no compiler ever wrote.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use probing_process::memory::{self, Memory};
use probing_process::procfs::maps::Mapping;
use probing_proto::process::Pid;
use proptest::prelude::*;

use crate::native::modules::{Loaded, Modules};
use crate::native::register_snapshot::{Pose, StackCopy};
use crate::native::registers::Registers;
use crate::native::unwind::{Calls, CallsEnd, follow};

const CODE: u64 = 0x7000_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;

/// No memory at all.
struct Nothing;

impl Memory for Nothing {
    fn read_many(&self, ranges: &[memory::Range]) -> Vec<Option<Vec<u8>>> {
        vec![None; ranges.len()]
    }
}

/// A library that every program here has.
fn library() -> Vec<u8> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let libc = paths.find(|path| path.contains("/libc.so") || path.contains("/libc-"));
    fs::read(libc.unwrap()).unwrap()
}

/// Where the file's code and tables lie: the ranges of its segments.
fn code(file: &[u8]) -> Range<u64> {
    let at = |offset: usize| u64::from_le_bytes(file[offset..offset + 8].try_into().unwrap());
    let headers = at(32) as usize;
    let is_code = |header: &usize| file[*header] == 1 && file[header + 4] & 1 == 1;
    let header = (0..20)
        .map(|index| headers + index * 56)
        .find(is_code)
        .unwrap();
    at(header + 8)..at(header + 8) + at(header + 32)
}

struct Case {
    folder: tempfile::TempDir,
    code: Range<u64>,
}

impl Case {
    fn new(file: &[u8], code: Range<u64>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("library.so"), file).unwrap();
        Self { folder, code }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("library.so")
    }

    /// Follows calls from an address in the file's code over a stack.
    fn follow(&self, address: u64, stack: Vec<u8>) -> Calls {
        let mapping = Mapping {
            start: CODE,
            end: CODE + (self.code.end - self.code.start).next_multiple_of(4096),
            offset: self.code.start & !4095,
            readable: true,
            writable: false,
            executable: true,
            path: self.path().to_string_lossy().into_owned(),
        };
        let mut loaded = Loaded::default();
        loaded.refresh(std::slice::from_ref(&mapping));
        let mut modules = Modules {
            pid: Pid(std::process::id()),
            memory: &Nothing,
            loaded: &mut loaded,
        };
        let size = mapping.end - mapping.start;
        let mut registers = Registers::new(CODE + address % size, STACK);
        for number in 0..16 {
            if number != crate::native::machine::STACK_POINTER {
                registers.set(number, Some(STACK + address % 4096 / 8 * 8));
            }
        }
        let pose = Pose {
            registers,
            stack: StackCopy::new(STACK, stack),
        };
        let calls = follow(&mut modules, &pose);
        modules.name_all(calls.calls.iter().map(|call| call.address), |_| true);
        calls
    }
}

/// A stack full of addresses of code and of itself.
fn stack(words: &[(bool, u64)], code: &Range<u64>) -> Vec<u8> {
    let size = code.end - code.start;
    let word = |(is_code, number): &(bool, u64)| {
        if *is_code {
            CODE + number % size
        } else {
            STACK + number % (words.len() as u64 * 8)
        }
    };
    words.iter().flat_map(|it| word(it).to_le_bytes()).collect()
}

#[test]
fn an_honest_library_is_followed() {
    let file = library();
    let code = code(&file);
    let case = Case::new(&file, code.clone());
    let words: Vec<(bool, u64)> = (0..512).map(|n| (true, n * 7919)).collect();
    let steps = (0..200).map(|n| case.follow(n * 4099, stack(&words, &code)).calls.len());
    assert!(steps.max().unwrap() > 2);
}

#[test]
fn half_a_file_is_nothing() {
    let file = library();
    let code = code(&file);
    for len in [0, 1, 63, 64, 500, file.len() / 2] {
        let case = Case::new(&file[..len], code.clone());
        let calls = case.follow(100, vec![0xff; 4096]);
        assert_eq!(calls.calls.len(), 1);
        assert_ne!(calls.end, CallsEnd::Outermost);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_stack_comes_to_an_end(
        words in prop::collection::vec((any::<bool>(), any::<u64>()), 1..512),
        addresses in prop::collection::vec(any::<u64>(), 64),
    ) {
        let file = library();
        let code = code(&file);
        let case = Case::new(&file, code.clone());
        for address in addresses {
            let calls = case.follow(address, stack(&words, &code)).calls;
            // Each call has its part of the stack, so there are not more of them than words.
            prop_assert!(calls.len() <= words.len() + 2);
        }
    }

    #[test]
    fn a_damaged_library_is_survived(
        words in prop::collection::vec((any::<bool>(), any::<u64>()), 64),
        addresses in prop::collection::vec(any::<u64>(), 32),
        damage in prop::collection::vec((any::<u64>(), any::<u8>()), 1..20_000),
    ) {
        let mut file = library();
        let code = code(&file);
        let (len, tables) = (file.len(), code.end as usize);
        for (index, (at, byte)) in damage.into_iter().enumerate() {
            // Headers now and then, mostly what follows the code: tables.
            let at = at as usize;
            let at = if index % 1000 == 0 { at % 1024 } else { tables + at % (len - tables) };
            file[at] = byte;
        }
        let case = Case::new(&file, code.clone());
        for address in addresses {
            case.follow(address, stack(&words, &code));
        }
    }
}
