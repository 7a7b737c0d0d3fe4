//! The words that Probing's parts share: what they say to each other, how it is framed, where they meet.
//!
//! Everything serialisable lives here: a type in this crate is a promise to every client.
//! Nothing here opens a file or a socket; both ends do that for themselves.

pub mod agent;
pub mod capture;
pub mod clock;
pub mod env;
pub mod function;
pub mod lines;
pub mod message;
pub mod names;
mod omitted;
pub mod own;
pub mod packets;
pub mod paths;
pub mod process;
pub mod reads;
pub mod report;
pub mod size;
pub mod speedscope;
pub mod stops;
pub mod store;
pub mod torch;
pub mod trace;
pub mod tracers;
pub mod visible;
pub mod wire;
