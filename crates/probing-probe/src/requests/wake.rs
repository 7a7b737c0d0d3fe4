//! How the probe's thread is woken, by rooms that do not know it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::process::per_process::PerProcess;

type Wake = Option<Box<dyn Fn() + Send>>;

static WAKE: PerProcess<Mutex<Wake>> = PerProcess::new();

/// The probe's thread is woken by this from now on.
pub(crate) fn wake_with(wake: Box<dyn Fn() + Send>) {
    *lock() = Some(wake);
}

/// Has the probe's thread look at its deadlines again.
pub(crate) fn wake() {
    if let Some(wake) = &*lock() {
        wake();
    }
}

fn lock() -> MutexGuard<'static, Wake> {
    let wake = WAKE.get_or_init(Mutex::default);
    wake.lock().unwrap_or_else(PoisonError::into_inner)
}
