//! Ends of steps that targets recorded, read so that their numbers can be aligned.

use std::sync::Arc;

use datafusion::arrow::array::{Array as _, AsArray as _, Int64Array, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{DataFusionError, Result};
use probing_proto::tables::builtin::STEPS;
use probing_store::{Chunk, Snapshot};

use crate::columns::arrays;
use crate::snapshot::steps::{Alignment, Period, StepEnd};
use crate::snapshot::target_snapshot::{TargetSetSnapshot, TargetSnapshot};

/// Ends of steps of one target that are read, the newest ones.
const MAX_ENDS: usize = 1 << 16;
const COLUMNS: [&str; 6] = ["ts", "step", "counted_by", "period", "job", "operations"];

/// The numbers of all targets.
pub(super) fn alignment(sight: &TargetSetSnapshot) -> Arc<Alignment> {
    let read = || {
        let (mut periods, mut others) = (Vec::new(), Vec::new());
        for (process, seen) in sight.all.iter().enumerate() {
            let read = of_target(process, seen);
            // Of a process without a rank nobody expects that others do the same.
            match (read, seen.rank()) {
                (Ok(read), Some(_)) if !read.is_empty() => periods.extend(read),
                (Ok(read), None) if read.is_empty() => {}
                _ => others.push(process),
            }
        }
        Arc::new(Alignment::of(periods, &others))
    };
    Arc::clone(sight.steps.get_or_init(read))
}

/// What one has counted. An error where a part of it cannot be read: who knows what was in that.
fn of_target(process: usize, seen: &TargetSnapshot) -> Result<Vec<Period>> {
    let Some(recorded) = seen.recorded().ok().flatten() else {
        return Ok(Vec::new());
    };
    let mut files = recorded.store.unreadable().iter();
    if files.any(|file| file.is_of(STEPS.name)) {
        return Err(unread());
    }
    let Some(table) = recorded.store.table(STEPS.name) else {
        return Ok(Vec::new());
    };
    let snapshot = table.snapshot().map_err(external)?;
    let mut rows = 0;
    let newest = snapshot.chunks().iter().rev().take_while(|chunk| {
        let is_wanted = rows < MAX_ENDS;
        rows += chunk.rows();
        is_wanted
    });
    let newest: Vec<&Chunk> = newest.collect();
    let mut periods = Vec::new();
    let mut last = None;
    for chunk in newest.into_iter().rev() {
        let whose = (process, &seen.host);
        add_chunk(whose, &snapshot, chunk, (&mut periods, &mut last))?;
    }
    Ok(periods)
}

fn unread() -> DataFusionError {
    DataFusionError::Execution("steps cannot be read".to_owned())
}

/// Adds the rows of a chunk to the last period, and to others that begin in it.
fn add_chunk(
    (process, host): (usize, &Arc<str>),
    snapshot: &Snapshot,
    chunk: &Chunk,
    (periods, last): (&mut Vec<Period>, &mut Option<i64>),
) -> Result<()> {
    let place = |name: &str| {
        let mut columns = snapshot.columns().iter();
        columns.position(|column| column.name == name)
    };
    let places = COLUMNS.map(place).into_iter().collect::<Option<Vec<_>>>();
    let places = places.ok_or_else(unread)?;
    let read = snapshot.read(chunk, &places).map_err(external)?;
    // It was overwritten meanwhile.
    let read = read.ok_or_else(unread)?;
    let arrays = read.into_iter().map(arrays::array);
    let arrays = arrays.collect::<std::result::Result<Vec<_>, _>>()?;
    let whole = |place: usize| -> Result<Int64Array> {
        let numbers = cast(&arrays[place], &DataType::Int64)?;
        Ok(numbers.as_primitive::<Int64Type>().clone())
    };
    let [at, step, period, operations] = [whole(0)?, whole(1)?, whole(3)?, whole(5)?];
    let (counted_by, job) = (arrays[2].as_string_view(), arrays[4].as_string_view());
    for row in 0..chunk.rows() {
        if last.replace(period.value(row)) != Some(period.value(row)) {
            periods.push(Period::new(process, host));
        }
        if let Some(period) = periods.last_mut() {
            let end = StepEnd {
                step: step.value(row),
                at_nanos: at.value(row),
                operations: operations.is_valid(row).then(|| operations.value(row)),
            };
            period.add(end, text(counted_by, row).as_deref(), text(job, row));
        }
    }
    Ok(())
}

fn text(column: &StringViewArray, row: usize) -> Option<String> {
    column.is_valid(row).then(|| column.value(row).to_owned())
}

fn external(error: probing_store::ReadError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
