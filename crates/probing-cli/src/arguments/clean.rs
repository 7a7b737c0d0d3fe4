//! Arguments of `probing clean`.

use std::time::Duration;

use clap::Args;
use probing_client::Limits;

use crate::arguments::amounts::{bytes, seconds};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing clean                        remove all rows of ended processes
  probing clean --dry-run              show what would be removed
  probing clean --older-than 3600      keep processes with rows of the last hour
  probing clean --keep 64M             keep the newest 64 MB

Rows of running processes stay. `probing list` also removes rows that are older than a day, and the
oldest rows above 256 MB.")]
pub(crate) struct CleanArguments {
    /// Remove rows of processes without a new row for SECONDS
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    older_than: Option<Duration>,

    /// Keep the newest rows, up to BYTES (500K, 64M)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    keep: Option<u64>,

    /// Show what would be removed, remove nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl CleanArguments {
    pub(crate) fn limits(&self) -> Limits {
        match (self.older_than, self.keep) {
            (None, None) => Limits::NOTHING,
            (age, bytes) => Limits {
                age: age.unwrap_or(Duration::MAX),
                bytes: bytes.unwrap_or(u64::MAX),
            },
        }
    }
}
