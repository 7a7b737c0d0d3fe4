//! `probing clean`

use std::time::Duration;

use clap::Args;
use probing_client::Limits;

use crate::arguments::amounts::{bytes, seconds};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing clean                        remove all that ended processes have recorded
  probing clean --dry-run              only say what would go
  probing clean --older-than 3600      keep what has rows of the last hour
  probing clean --keep 64M             keep the newest 64 MB

Processes that run are never touched. Without being asked, `probing list` removes what is older than a
day, and the oldest of what is more than 256 MB.")]
pub(crate) struct CleanArguments {
    /// Only what has had no row for so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    older_than: Option<Duration>,

    /// Keep the newest, up to so many bytes: 500K, 64M
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    keep: Option<u64>,

    /// Remove nothing, only say what would go
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
