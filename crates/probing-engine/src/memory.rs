//! The memory limit of a query, which leaves the programs what they need.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{Array, AsArray as _, RecordBatch};
use datafusion::arrow::datatypes::DataType;

/// At most this, however much is free.
const MAX_BYTES: u64 = 4 << 30;
/// At most this part of what is free.
const SHARE: u64 = 4;
/// So much in any case: less answers nothing.
const MIN_BYTES: u64 = 64 << 20;
/// Where a container finds its own limits.
const CONTAINER: &str = "/sys/fs/cgroup";

/// What is free is looked up again after this: it takes a tenth of the time of a small query.
const LASTS: Duration = Duration::from_secs(1);

/// What a query takes unless it is told otherwise.
pub(crate) fn usual() -> usize {
    static LAST: Mutex<Option<(Instant, usize)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match *last {
        Some((then, bytes)) if then.elapsed() < LASTS => bytes,
        _ => last.insert((Instant::now(), part_of_what_is_free())).1,
    }
}

fn part_of_what_is_free() -> usize {
    let of_machine = fs::read_to_string("/proc/meminfo").ok();
    let of_machine = of_machine.as_deref().and_then(available);
    let free = of_machine.into_iter().chain(left_in(Path::new(CONTAINER)));
    let free = free.min().unwrap_or(MIN_BYTES);
    (free / SHARE).clamp(MIN_BYTES, MAX_BYTES) as usize
}

/// In bytes, from `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// What a container may still take; `None` without a limit.
fn left_in(folder: &Path) -> Option<u64> {
    let number = |file: &str| -> Option<u64> {
        let text = fs::read_to_string(folder.join(file)).ok()?;
        text.trim().parse().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

/// What the values of a batch take. Texts that other batches have, too, are counted as often as they are named.
pub(crate) fn weight(batch: &RecordBatch) -> usize {
    let of = |array: &dyn Array| match array.data_type() {
        DataType::Utf8View => {
            let views = array.as_string_view();
            size_of_val(&**views.views()) + views.total_buffer_bytes_used()
        }
        _ => array.get_array_memory_size(),
    };
    batch.columns().iter().map(|array| of(array.as_ref())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_read_from_what_the_kernel_says() {
        let text = "MemTotal:       16000000 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n";
        assert_eq!(available(text), Some(2 << 20));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        let folder = tempfile::tempdir().unwrap();
        let say = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        assert_eq!(left_in(folder.path()), None);
        say("memory.max", "max\n");
        say("memory.current", "600\n");
        assert_eq!(left_in(folder.path()), None);
        say("memory.max", "1000\n");
        assert_eq!(left_in(folder.path()), Some(400));
    }

    #[test]
    fn a_query_has_a_part_of_what_is_free_and_bounds() {
        let usual = usual() as u64;
        assert!((MIN_BYTES..=MAX_BYTES).contains(&usual), "{usual}");
    }
}
