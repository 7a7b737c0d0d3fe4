//! Reads real targets through memory that lies: every now and then a word is another one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use probing_process::access::source::Source;
use probing_proto::process::Pid;
use probing_testkit::{Sandbox, every_python};

use crate::asyncio::{self, Lists, Tasks};
use crate::consistency::Reading;
use crate::memory::{Bounded, Memory, Range};
use crate::python::code::Codes;
use crate::snapshot::{self, Reader};
use crate::{Frame, LocalLimits};

struct Lying<'a> {
    memory: &'a dyn Source,
    seed: u64,
    /// One word in so many is a lie.
    rarity: u64,
    /// Each reading lies elsewhere.
    moving: bool,
    readings: AtomicU64,
}

impl Lying<'_> {
    fn lie(&self, address: u64, bytes: &mut [u8]) {
        let time = if self.moving {
            self.readings.load(Ordering::Relaxed)
        } else {
            0
        };
        let all: Vec<u8> = bytes.to_vec();
        for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
            let mut hash = (address + 8 * index as u64) ^ self.seed ^ (time << 40);
            for _ in 0..3 {
                hash = (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
            hash ^= hash >> 29;
            if !hash.is_multiple_of(self.rarity) {
                continue;
            }
            let other = (hash >> 20) as usize % (all.len() / 8) * 8;
            let value = match hash >> 60 {
                0 | 1 => 0,
                2 => u64::MAX,
                3 => address,
                4 => hash >> 50,
                5 => hash,
                _ => all[other..other + 8]
                    .iter()
                    .rev()
                    .fold(0, |n, b| n << 8 | u64::from(*b)),
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
    }
}

impl Memory for Lying<'_> {
    fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>> {
        self.readings.fetch_add(1, Ordering::Relaxed);
        let mut answers = self.memory.read_many(ranges);
        for ((address, _), answer) in ranges.iter().zip(&mut answers) {
            if let Some(bytes) = answer.as_mut() {
                self.lie(*address, bytes);
            }
        }
        answers
    }
}

fn tasks(reader: &Reader, memory: &Lying<'_>) -> Option<Tasks> {
    let bounded = Bounded::new(memory, 64 << 20);
    let known = reader
        .threads(
            &Bounded::new(&*reader.source, usize::MAX),
            &crate::Options::default(),
        )
        .ok()?;
    let reading = Reading {
        interpreter: &reader.interpreter,
        memory: &bounded,
        max_depth: 1000,
        pause: crate::Pause::Never,
        until: Instant::now() + Duration::from_millis(20),
        locals: None,
    };
    let lists = Lists::find(&*reader.source);
    Some(asyncio::read(
        &*reader.source,
        &reading,
        &mut Codes::default(),
        &known,
        lists,
    ))
}

#[test]
fn tasks_are_read_through_memory_that_lies() {
    every_python(|python| {
        let mut target = Sandbox::new("none")
            .target(python, "stacks/tasks.py")
            .start();
        target.line();
        let reader = Reader::open(Pid(target.pid())).unwrap();
        let truth = |rarity, seed| {
            let readings = AtomicU64::new(0);
            let moving = seed % 2 == 1;
            let memory = &*reader.source;
            let lying = Lying {
                memory,
                seed,
                rarity,
                moving,
                readings,
            };
            tasks(&reader, &lying).map_or(0, |found| found.tasks.len())
        };
        let all = truth(u64::MAX, 0);
        assert!(all > 25, "{all}");
        // Rare lies let the reader come far, frequent ones do not let it begin.
        let counts: Vec<usize> = (0..100)
            .map(|seed| truth(20 << (seed % 12), seed))
            .collect();
        assert!(
            counts.iter().any(|count| *count > 0 && *count < all),
            "{counts:?}"
        );
    });
}

/// All frames, with their locals.
fn frames(reader: &Reader, memory: &Lying<'_>) -> Vec<Frame> {
    let bounded = Bounded::new(memory, 64 << 20);
    let known = reader
        .threads(
            &Bounded::new(&*reader.source, usize::MAX),
            &crate::Options::default(),
        )
        .unwrap();
    let reading = Reading {
        interpreter: &reader.interpreter,
        memory: &bounded,
        max_depth: 1000,
        pause: crate::Pause::Never,
        until: Instant::now() + Duration::from_millis(20),
        locals: Some(LocalLimits::default()),
    };
    let (stacks, ..) = snapshot::stacks(&*reader.source, &reading, &mut Codes::default(), known);
    stacks.into_iter().flat_map(|stack| stack.frames).collect()
}

#[test]
fn locals_are_read_through_memory_that_lies() {
    every_python(|python| {
        let mut target = Sandbox::new("none")
            .target(python, "stacks/values.py")
            .start();
        target.line();
        let reader = Reader::open(Pid(target.pid())).unwrap();
        let count = |rarity, seed| {
            let lying = Lying {
                memory: &*reader.source,
                seed,
                rarity,
                moving: seed % 2 == 1,
                readings: AtomicU64::new(0),
            };
            let mut values = 0;
            for frame in frames(&reader, &lying) {
                let locals = frame.locals.unwrap_or_default();
                assert!(locals.len() <= LocalLimits::default().values);
                for local in locals {
                    assert!(local.value.len() < 64 << 10, "{}", local.value.len());
                    values += usize::from(local.kind.is_some());
                }
            }
            values
        };
        let all = count(u64::MAX, 0);
        assert!(all > 200, "{all}");
        let counts: Vec<usize> = (0..40).map(|seed| count(50 << (seed % 12), seed)).collect();
        let partly = |count: &usize| *count > 0 && *count < all;
        assert!(counts.iter().any(partly), "{counts:?}");
    });
}
