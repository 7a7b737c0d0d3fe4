//! The protocol that Probing's parts share: messages, frames, schemas, paths and variables.
//!
//! Everything serialisable lives here: a type in this crate is a promise to every client.
//! Nothing here opens a file or a socket; both ends do that for themselves.

pub mod agent;
pub mod capture;
pub mod dap;
pub mod env;
pub mod message;
pub mod paths;
pub mod process;
pub mod report;
pub mod speedscope;
pub mod tables;
pub mod text;
pub mod wire;
