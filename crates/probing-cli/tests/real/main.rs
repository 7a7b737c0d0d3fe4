//! Real software as targets: Lightning, Hugging Face's Trainer, Ray, uWSGI, `PyInstaller`, a chroot.
//!
//! Run by `make real`.
//!
//! Each program is asked what a user would ask, and its result is the same as that of a run without Probing.
#![expect(clippy::unwrap_used, reason = "a test")]

mod frozen;
mod program;
mod ray;
mod trainings;
mod uwsgi;
mod walk;
