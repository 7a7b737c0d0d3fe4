//! Breakpoints and stopped threads, over the protocol: what is armed, what it sees, and what a stopped thread does.
#![expect(clippy::unwrap_used, reason = "a test")]

mod beside;
mod conditions;
mod corpus;
mod debugger;
mod ends;
mod exceptions;
mod expressions;
mod given_up;
mod imports;
mod kills;
mod leavings;
mod lines;
mod names;
mod points;
mod sessions;
mod signals;
mod steps;
mod watches;
