//! Access: permission to read a process, and files that another user controls.

pub mod foreign_files;
pub mod peer;
pub mod permission;
pub mod priority;
pub mod source;
