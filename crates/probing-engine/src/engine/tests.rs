//! Whole queries: their limits, and the files they are written into.

mod limits;
mod parquet;
