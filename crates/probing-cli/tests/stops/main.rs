//! Breakpoints and stopped threads, over the protocol: what is armed, what it sees, and what a stopped thread does.
#![expect(clippy::unwrap_used, reason = "a test")]

mod beside;
mod beside_pdb;
mod conditions;
mod corpus;
mod debugger;
mod definitions;
mod ends;
mod exceptions;
mod expressions;
mod given_up;
mod handlers;
mod imports;
mod kills;
mod leavings;
mod lines;
mod messages;
mod names;
mod one_line;
mod points;
mod sessions;
mod setting;
mod signals;
mod steps;
mod warnings;
mod watches;
