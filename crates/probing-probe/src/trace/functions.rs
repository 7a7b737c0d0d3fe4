//! Functions that were ever traced here, by number: what rows say of them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use probing_proto::message::breakpoints::SourceLocation;

#[derive(Default)]
struct Functions {
    all: Vec<SourceLocation>,
    numbers: HashMap<SourceLocation, u32>,
}

/// Reached with the GIL held only.
static FUNCTIONS: Mutex<Option<Functions>> = Mutex::new(None);

/// The number of a function: the same each time.
pub(crate) fn number(spot: &SourceLocation) -> u32 {
    let mut functions = functions();
    let functions = functions.get_or_insert_default();
    if let Some(number) = functions.numbers.get(spot) {
        return *number;
    }
    let number = functions.all.len() as u32;
    functions.all.push(spot.clone());
    functions.numbers.insert(spot.clone(), number);
    number
}

pub(crate) fn with<T>(number: u32, work: impl FnOnce(&SourceLocation) -> T) -> Option<T> {
    let functions = functions();
    let spot = functions.as_ref()?.all.get(number as usize)?;
    Some(work(spot))
}

fn functions() -> MutexGuard<'static, Option<Functions>> {
    FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}
