//! What is told of many numbers, from one pass over them: how they lie, and how many are none.
//!
//! Least, greatest, mean, deviation and norm are those of the finite numbers: one NaN must not hide how the others are.
#![expect(
    clippy::inline_always,
    reason = "the pass over a million numbers is one loop only if all of it is inside"
)]

use crate::recording::statistics::{Finite, Statistics};

/// Numbers that are taken together: eight `f32` fill a register.
const LANES: usize = 8;
/// What is gathered from memory that does not lie together.
const GATHERED: usize = 1024;

/// A kind of number, as it lies in memory.
pub(crate) trait Number: Copy + Default {
    fn wide(self) -> f64;
    /// Of whole numbers, always.
    fn is_finite(self) -> bool;
    fn is_nan(self) -> bool;
}

macro_rules! floats {
    ($($kind:ty),*) => {$(
        impl Number for $kind {
            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                self.abs() < <$kind>::INFINITY
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                self != self
            }
        }
    )*};
}

macro_rules! whole {
    ($($kind:ty),*) => {$(
        impl Number for $kind {
            #[allow(
                clippy::cast_lossless,
                reason = "the widest of them lose digits, and have no other way"
            )]
            #[inline(always)]
            fn wide(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                true
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}

floats!(f32, f64);
whole!(i8, i16, i32, i64, u8, u16, u32, u64);

/// `float16`: five bits of exponent, ten of fraction.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub(crate) struct Float16(u16);

/// `bfloat16`: the upper half of an `f32`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub(crate) struct BFloat16(u16);

impl Number for Float16 {
    #[inline(always)]
    fn wide(self) -> f64 {
        // The exponent's bias differs by 112: shifted into an f32's place, the number is 2^-112 of what it is, which also
        // holds for the smallest, without leading one.
        let magnitude = f32::from_bits(u32::from(self.0 & 0x7fff) << 13);
        let wide = f64::from(magnitude) * f64::from_bits((1023 + 112) << 52);
        if self.0 & 0x8000 == 0 { wide } else { -wide }
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        self.0 & 0x7c00 != 0x7c00
    }

    #[inline(always)]
    fn is_nan(self) -> bool {
        self.0 & 0x7fff > 0x7c00
    }
}

impl Number for BFloat16 {
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(f32::from_bits(u32::from(self.0) << 16))
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        self.0 & 0x7f80 != 0x7f80
    }

    #[inline(always)]
    fn is_nan(self) -> bool {
        self.0 & 0x7fff > 0x7f80
    }
}

/// Sums over numbers, as far as they have been seen.
#[derive(Debug, Clone)]
struct Sums {
    /// One of the numbers: deviations from it lose no digits when all are large and near each other.
    pivot: f64,
    count: u64,
    nan: u64,
    finite: u64,
    zero: u64,
    min: f64,
    max: f64,
    deviation: f64,
    deviation_squared: f64,
    squared: f64,
}

impl Sums {
    fn new(pivot: f64) -> Self {
        Self {
            pivot,
            count: 0,
            nan: 0,
            finite: 0,
            zero: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            deviation: 0.0,
            deviation_squared: 0.0,
            squared: 0.0,
        }
    }

    fn add<T: Number>(&mut self, numbers: &[T]) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
        {
            #[expect(
                unsafe_code,
                reason = "the processor has what the function is made for"
            )]
            // SAFETY: both features are there.
            unsafe {
                self.add_by_avx(numbers);
            }
            return;
        }
        self.add_lanes(numbers);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn add_by_avx<T: Number>(&mut self, numbers: &[T]) {
        self.add_lanes(numbers);
    }

    #[inline(always)]
    fn add_lanes<T: Number>(&mut self, numbers: &[T]) {
        let mut lanes = Lanes::default();
        let (together, rest) = numbers.as_chunks::<LANES>();
        for chunk in together {
            for (lane, number) in chunk.iter().enumerate() {
                lanes.add(lane, *number, self.pivot);
            }
        }
        for number in rest {
            lanes.add(0, *number, self.pivot);
        }
        self.count += numbers.len() as u64;
        for lane in 0..LANES {
            self.nan += lanes.nan[lane];
            self.finite += lanes.finite[lane];
            self.zero += lanes.zero[lane];
            self.min = self.min.min(lanes.min[lane]);
            self.max = self.max.max(lanes.max[lane]);
            self.deviation += lanes.deviation[lane];
            self.deviation_squared += lanes.deviation_squared[lane];
            self.squared += lanes.squared[lane];
        }
    }

    /// Of all these numbers, each so many times.
    fn told(&self, times: u64) -> Statistics {
        let finite = (self.finite > 0).then(|| {
            let seen = self.finite as f64;
            let all = seen * times as f64;
            let about_mean =
                (self.deviation_squared - self.deviation * self.deviation / seen).max(0.0);
            Finite {
                min: self.min,
                max: self.max,
                mean: self.pivot + self.deviation / seen,
                std: (all > 1.0).then(|| (about_mean * times as f64 / (all - 1.0)).sqrt()),
                norm: (self.squared * times as f64).sqrt(),
            }
        });
        Statistics {
            count: self.count * times,
            nan: self.nan * times,
            inf: (self.count - self.nan - self.finite) * times,
            zero: self.zero * times,
            finite,
        }
    }
}

/// Sums that are made side by side.
struct Lanes {
    nan: [u64; LANES],
    finite: [u64; LANES],
    zero: [u64; LANES],
    min: [f64; LANES],
    max: [f64; LANES],
    deviation: [f64; LANES],
    deviation_squared: [f64; LANES],
    squared: [f64; LANES],
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            nan: [0; LANES],
            finite: [0; LANES],
            zero: [0; LANES],
            min: [f64::INFINITY; LANES],
            max: [f64::NEG_INFINITY; LANES],
            deviation: [0.0; LANES],
            deviation_squared: [0.0; LANES],
            squared: [0.0; LANES],
        }
    }
}

impl Lanes {
    #[inline(always)]
    fn add<T: Number>(&mut self, lane: usize, number: T, pivot: f64) {
        let is_finite = number.is_finite();
        let wide = number.wide();
        // What is not finite counts as the pivot, which deviates by nothing, and as no square.
        let deviation = if is_finite { wide - pivot } else { 0.0 };
        let squared = if is_finite { wide * wide } else { 0.0 };
        let low = if is_finite { wide } else { f64::INFINITY };
        let high = if is_finite { wide } else { f64::NEG_INFINITY };
        self.nan[lane] += u64::from(number.is_nan());
        self.finite[lane] += u64::from(is_finite);
        self.zero[lane] += u64::from(wide == 0.0);
        self.min[lane] = if low < self.min[lane] {
            low
        } else {
            self.min[lane]
        };
        self.max[lane] = if high > self.max[lane] {
            high
        } else {
            self.max[lane]
        };
        self.deviation[lane] += deviation;
        self.deviation_squared[lane] += deviation * deviation;
        self.squared[lane] += squared;
    }
}

/// How numbers lie in memory: pairs of how many, and how far apart, in numbers. Far steps first.
#[derive(Debug, Clone, Default)]
pub(crate) struct StridedLayout {
    dimensions: Vec<(usize, isize)>,
    /// How many times each is there.
    times: u64,
}

impl StridedLayout {
    /// Which numbers there are does not depend on the order in which they are looked at: so the dimensions are sorted, and
    /// those that follow on each other become one.
    pub(crate) fn new(shape: &[i64], strides: &[i64]) -> Self {
        let mut times = 1;
        let mut dimensions: Vec<(usize, isize)> = Vec::with_capacity(shape.len());
        for (&size, &stride) in shape.iter().zip(strides) {
            let size = size.max(0) as usize;
            match (size, stride) {
                (0, _) => {
                    return Self {
                        dimensions: vec![(0, 1)],
                        times: 1,
                    };
                }
                (1, _) => {}
                (_, 0) => times *= size as u64,
                _ => dimensions.push((size, stride as isize)),
            }
        }
        dimensions.sort_by_key(|&(_, stride)| std::cmp::Reverse(stride.unsigned_abs()));
        let mut merged: Vec<(usize, isize)> = Vec::with_capacity(dimensions.len());
        for (size, stride) in dimensions {
            match merged.last_mut() {
                Some((outer, far)) if *far == stride.saturating_mul(size as isize) => {
                    *outer *= size;
                    *far = stride;
                }
                _ => merged.push((size, stride)),
            }
        }
        Self {
            dimensions: merged,
            times,
        }
    }

    fn is_empty(&self) -> bool {
        self.dimensions.iter().any(|&(size, _)| size == 0)
    }
}

/// The numbers that lie so from `first` on.
///
/// # Safety
///
/// Every number of the lie is in memory that stays as it is for as long as this runs, aligned, and may have any bits.
#[expect(unsafe_code, reason = "numbers lie in memory that torch has told of")]
pub(crate) unsafe fn compute<T: Number>(first: *const T, lie: &StridedLayout) -> Statistics {
    if lie.is_empty() {
        return Sums::new(0.0).told(1);
    }
    // SAFETY: the first number is there, as the caller says.
    let pivot = unsafe { first.read() };
    let pivot = if pivot.is_finite() { pivot.wide() } else { 0.0 };
    let mut sums = Sums::new(pivot);
    let (outer, inner) = match lie.dimensions.split_last() {
        Some((&inner, outer)) => (outer, inner),
        None => (&[][..], (1, 1)),
    };
    let mut at = vec![0_usize; outer.len()];
    let mut gathered = [T::default(); GATHERED];
    loop {
        let offset: isize = outer
            .iter()
            .zip(&at)
            .map(|(&(_, stride), &index)| stride * index as isize)
            .sum();
        // SAFETY: within the lie, as the caller says.
        let row = unsafe { first.offset(offset) };
        if inner.1 == 1 {
            // SAFETY: so many lie side by side.
            sums.add(unsafe { std::slice::from_raw_parts(row, inner.0) });
        } else {
            let mut taken = 0;
            while taken < inner.0 {
                let some = GATHERED.min(inner.0 - taken);
                for (index, place) in gathered[..some].iter_mut().enumerate() {
                    // SAFETY: within the lie.
                    *place = unsafe { row.offset((taken + index) as isize * inner.1).read() };
                }
                sums.add(&gathered[..some]);
                taken += some;
            }
        }
        if !advance(&mut at, outer) {
            return sums.told(lie.times);
        }
    }
}

/// The next place; whether there is one.
fn advance(at: &mut [usize], outer: &[(usize, isize)]) -> bool {
    for (index, &(size, _)) in at.iter_mut().zip(outer).rev() {
        *index += 1;
        if *index < size {
            return true;
        }
        *index = 0;
    }
    false
}
